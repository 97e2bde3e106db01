"""Deciders: load a state, decide what happens, write that if the stream is unchanged, else decide again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.errors import BadEvent, BadSetting, TooManyConflicts, VersionConflict
from tailrace.events.append import AppendSettings, StreamAppend, commit, part
from tailrace.events.cache import AssumeEmpty, Cache, Load, RequireLatest
from tailrace.events.loading import Loaded, Loading
from tailrace.events.tip import Tip
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")
LATEST = RequireLatest()
ATTEMPTS = 20
"""How often a decider decides again while other writers are quicker; with the pauses, that takes some seconds."""
LAST_GROWING_PAUSE = 7
"""Pauses grow with every second attempt, up to 1.3 seconds, and no further: short ones suffice where commits are quick,
and on a busy disk or far away fewer writers are under way at once the longer each of them waits."""


@dataclass(frozen=True, slots=True)
class DeciderSteps(Generic[E, S]):
    """The steps of a decider, which both threads and asyncio carry out."""

    loading: Loading[E, S]
    settings: AppendSettings
    cache: Cache | None = None
    attempts: int = ATTEMPTS

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise BadSetting(f"a decider makes at least one attempt, not {self.attempts!r}")

    def load(self, load: Load) -> Steps[Loaded[S]]:
        """The state, as recent as the caller asks."""
        if isinstance(load, AssumeEmpty):
            return Loaded(Tip(self.loading.stream), self.loading.initial)
        cached = self.cache.get(self._key, load) if self.cache is not None else None
        if cached is None:
            loaded = yield from self.loading.load()
        elif self.cache is not None and self.cache.fresh(cached, load):
            return Loaded(cached.tip, cached.state)
        else:
            loaded = yield from self.loading.reload(Loaded(cached.tip, cached.state))
        self._keep(loaded)
        return loaded

    def part(self, loaded: Loaded[S], events: Iterable[E]) -> tuple[StreamAppend, S]:
        """What to write for a decision, and the state after it; without events, the condition that the stream is
        unchanged."""
        stream = self.loading.stream
        new, codec = list(decided(stream, events)), self.loading.codec
        made = {id(one): codec.encode(stream, one) for one in new}  # a wrong one would fail less clearly in fold
        if not new:
            return StreamAppend(stream, None, seen=loaded.tip, strict=True), loaded.state
        state = self.loading.folded(loaded.state, new)
        written, unfolds = self.loading.strategy.transmute(new, state)
        encoded = [[made.get(id(one)) or codec.encode(stream, one) for one in some] for some in (written, unfolds)]
        return part(stream, encoded[0], encoded[1], self.settings, seen=loaded.tip, strict=True), state

    def wrote(self, tip: Tip, version: int, state: S) -> None:
        """Remember the state after a write, unless a later write followed."""
        if tip.version == version:
            self._keep(Loaded(tip, state))

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.loading.stream, self.loading.fold

    def _keep(self, loaded: Loaded[S]) -> None:
        if self.cache is not None:
            self.cache.put(self._key, loaded.tip, loaded.state)


def transact(
    deciders: Sequence[DeciderSteps[Any, Any]],
    decide: Callable[[list[Any]], tuple[R, Sequence[Iterable[Any]]]],
    load: Load,
) -> Steps[tuple[R, list[Any]]]:
    """One decision over some streams, written in one transaction; returns its result and the states after it.

    Streams without events must not have changed."""
    for attempt in range(deciders[0].attempts):
        loaded = []
        for decider in deciders:
            loaded.append((yield from decider.load(load if attempt == 0 else LATEST)))
        result, events = decide([one.state for one in loaded])
        if not isinstance(events, Sequence) or len(events) != len(deciders):
            raise BadEvent(
                f"a decision over {len(deciders)} streams gives a list of events for each, in their order; [] where "
                "nothing happens"
            )
        planned = [d.part(one, new) for d, one, new in zip(deciders, loaded, events, strict=True)]
        if not any(p.batch for p, _ in planned):
            return result, [one.state for one in loaded]
        try:
            done = yield from commit([p for p, _ in planned], deciders[0].settings)
        except VersionConflict as conflict:
            last = conflict
            yield from calls.pause(min(attempt // 2 + 1, LAST_GROWING_PAUSE))
            continue
        for decider, (_, state), appended in zip(deciders, planned, done, strict=True):
            if appended.own:
                decider.wrote(appended.tip, appended.version, state)
        return result, [state for _, state in planned]
    names = ", ".join(repr(decider.loading.stream) for decider in deciders)
    raise TooManyConflicts(
        f"{deciders[0].attempts} attempts to decide on {names} each met another writer; try again later, "
        "or allow more of them with attempts=…"
    ) from last


class Decider(Generic[E, S]):
    """A stream, its state, and decisions on it; `events.decider` makes it.  Any thread may use it.

    `decide` may be called more than once, so it should only decide, without other effects."""

    def __init__(self, store: Store, deciding: DeciderSteps[E, S]) -> None:
        self._store, self.deciding = store, deciding

    def state(self, load: Load = LATEST) -> S:
        """The stream's state."""
        return self._store.run(self.deciding.load(load)).state

    def version(self, load: Load = LATEST) -> int:
        """The stream's version."""
        return self._store.run(self.deciding.load(load)).tip.version

    def transact(self, decide: Callable[[S], Iterable[E]], load: Load = LATEST) -> S:
        """Write the events that `decide(state)` returns, if the stream is still at that state; returns the state after
        them."""
        steps = transact([self.deciding], lambda states: (None, [decide(states[0])]), load)
        state: S = self._store.run(steps)[1][0]
        return state

    def answer(self, decide: Callable[[S], tuple[R, Iterable[E]]], load: Load = LATEST) -> R:
        """As `transact`, for a `decide` that returns an answer and the events; returns the answer."""
        return self._store.run(transact([self.deciding], lambda states: paired(decide(states[0])), load))[0]


def paired(decision: tuple[R, Iterable[Any]]) -> tuple[R, list[Iterable[Any]]]:
    """The decision on one stream in the form of a decision on several: the result, and the events of each stream."""
    if not isinstance(decision, tuple) or len(decision) != 2:
        raise BadEvent(f"`answer` takes a decision that gives (answer, [event, …]), not a {type(decision).__name__}")
    return decision[0], [decision[1]]


def decided(stream: str, events: Iterable[E]) -> Iterable[E]:
    """The events that a decider's function returned; refuses anything but a list of events."""
    if events is None:
        raise BadEvent(f"the decision on {stream!r} gave None; give a list of events, [] where nothing happens")
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
        raise BadEvent(
            f"the decision on {stream!r} gave a {type(events).__name__}; give a list of events: [event], [] for none"
        )
    return events
