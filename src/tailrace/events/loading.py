"""Loading: folds a stream's state from its origin or from the cached state, with as few reads as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tailrace.events.codec import Codec
from tailrace.events.event import Event
from tailrace.events.reading import Backward, Forward, read_tip
from tailrace.events.strategy import Strategy
from tailrace.events.tip import Tip
from tailrace.storage.calls import Steps

E = TypeVar("E")
S = TypeVar("S")


class Loaded(NamedTuple, Generic[S]):
    """A state, and the Tip up to which it was folded."""

    tip: Tip
    state: S


@dataclass(frozen=True, slots=True)
class Loading(Generic[E, S]):
    """Everything needed to fold a stream into a state."""

    stream: str
    codec: Codec[E]
    fold: Callable[[S, E], S]
    initial: S
    strategy: Strategy[E, S]

    def load(self) -> Steps[Loaded[S]]:
        """The state, folded without an earlier one."""
        if self.strategy.is_origin is None:
            return (yield from self._forward(Tip(self.stream), self.initial))
        return (yield from self._back((yield from read_tip(self.stream)), None))

    def reload(self, known: Loaded[S]) -> Steps[Loaded[S]]:
        """The state, folded from an earlier one: if there are no new events, only the Tip is read."""
        tip = yield from read_tip(self.stream)
        if tip.version < known.tip.version or (tip.version, tip.etag) == (known.tip.version, known.tip.etag):
            return known
        if self.strategy.is_origin is not None:
            return (yield from self._back(tip, known))
        if tip.first <= known.tip.version:
            return Loaded(tip, self.folded(known.state, self._decoded(tip.events()[known.tip.version - tip.first :])))
        return (yield from self._forward(known.tip, known.state))

    def folded(self, state: S, events: Sequence[E]) -> S:
        """An earlier state with later events folded in."""
        for event in events:
            state = self.fold(state, event)
        return state

    def _forward(self, tip: Tip, state: S) -> Steps[Loaded[S]]:
        reader = Forward(self.stream, tip.version)
        while page := (yield from reader.page()):
            state = self.folded(state, self._decoded(page))
        return Loaded(reader.tip or tip, state)

    def _back(self, tip: Tip, known: Loaded[S] | None) -> Steps[Loaded[S]]:
        """Read the newest events first, back to the origin or to the known state."""
        newest = [*tip.events(), *(tip.unfolds() if self.strategy.unfolds else ())]
        newest.sort(key=lambda event: (event.index, event.unfold))
        since, found = known.tip.version if known is not None else 0, list[E]()
        if self._collect(newest[::-1], since, found):
            return Loaded(tip, self.folded(self.initial, found[::-1]))
        reader = Backward(self.stream, since, tip.first)
        reader.tip = tip
        while page := (yield from reader.page()):
            if self._collect(page, since, found):
                return Loaded(tip, self.folded(self.initial, found[::-1]))
        return Loaded(tip, self.folded(known.state if known is not None else self.initial, found[::-1]))

    def _collect(self, newest: Sequence[Event], since: int, found: list[E]) -> bool:
        """Collect new events, newest first; returns whether the origin is among them."""
        assert self.strategy.is_origin is not None
        for event in newest:
            if event.index < since and not event.unfold:
                return False
            value = self.codec.decode(self.stream, event)
            if value is None:
                continue
            origin = self.strategy.is_origin(value)
            if origin or not event.unfold:
                found.append(value)
            if origin:
                return True
        return False

    def _decoded(self, events: Sequence[Event]) -> list[E]:
        decode, stream = self.codec.decode, self.stream
        return [value for event in events if (value := decode(stream, event)) is not None]
