"""Event store: its public interface, streams and appends to several of them.

carts = home.events()
cart = carts.stream("Cart-42")
cart.append([Event("ItemAdded", b"...")], expected=0)
for event in cart.read():
    print(event.index, event.type, event.data)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.errors import BadInput, BadSetting
from tailrace.events import listing
from tailrace.events.append import AppendSettings, StreamAppend, commit, part
from tailrace.events.archive import WithArchive
from tailrace.events.cache import Cache, Load
from tailrace.events.codec import Codec
from tailrace.events.decider import ATTEMPTS, LATEST, Decider, DeciderSteps, transact
from tailrace.events.event import Event, check_name, check_version, split_name
from tailrace.events.loading import Loading
from tailrace.events.payload import check_compression
from tailrace.events.pruning import Pruned, prune
from tailrace.events.reading import Backward, Forward, read_tip
from tailrace.events.strategy import Strategy, unoptimized
from tailrace.events.tip import TIP, Tip, TipLimits
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Table

if TYPE_CHECKING:
    from tailrace.events.aio import AsyncEvents

E = TypeVar("E")
S = TypeVar("S")
_SETTINGS = ("max_events", "max_event_bytes", "max_bytes", "compression", "archive")


def settings_of(given: dict[str, Any]) -> AppendSettings:
    """The settings of an event store by name; a typo is refused with the nearest right name."""
    for name in given:
        if name not in _SETTINGS:
            raise BadSetting.unknown("an event store", name, _SETTINGS)
    limits = {name: value for name, value in given.items() if name.startswith("max_")}
    return AppendSettings(TipLimits(**limits), check_compression(given.get("compression", "deflate")))


class Events:
    """An event store.  Any thread may use it.

    Settings: `max_events`, `max_event_bytes` and `max_bytes` say when a stream's Tip calves (None; 32 KiB, on a disk
    8 KiB; 32 KiB); `compression` is none, deflate (default) or brotli; `archive` is the table of another home: `prune`
    moves calves there, and they are read from there afterwards (`home.events` takes the home, or its URL)."""

    def __init__(self, store: Store, *, archive: Table | None = None, **settings: Any) -> None:
        self.settings = settings_of({"max_event_bytes": store.table.handy_bytes, **settings})
        self.store = self.pruned = store
        if archive is not None:
            both = WithArchive(store.table, archive)
            self.store, self.pruned = replace(store, table=both), replace(store, table=both.filling)

    @property
    def aio(self) -> AsyncEvents:
        """The same for asyncio."""
        from tailrace.events.aio import AsyncEvents

        return AsyncEvents(self)

    def stream(self, name: str) -> Stream:
        """The stream of this name, `Category-id`; it exists once something is appended."""
        return Stream(self, check_name(name))

    def append(self, *changes: StreamChange) -> dict[str, int]:
        """Append to several streams in one transaction, all or nothing; returns the version of each.

        `events.append(a.change([...], expected=3), b.expect(7))` also requires that b is at version 7, without writing
        it.  A transaction has at most 100 actions: one for a stream, two for one that calves."""
        return self.store.run(self.appending(changes))

    def appending(self, changes: Iterable[StreamChange]) -> Steps[dict[str, int]]:
        """The steps of `append`."""
        parts = [change.part(self.settings) for change in changes]
        if not any(p.batch for p in parts):
            raise BadInput("an append changes at least one stream; to look at some, read them")
        done = yield from commit(parts, self.settings)
        return {p.stream: appended.version for p, appended in zip(parts, done, strict=True)}

    def decider(
        self,
        stream: str,
        codec: Codec[E],
        fold: Callable[[S, E], S],
        initial: S,
        *,
        strategy: Strategy[E, S] | None = None,
        cache: Cache | None = None,
        attempts: int = ATTEMPTS,
    ) -> Decider[E, S]:
        """Decisions on one stream: its state is `fold(state, event)` over its events, from `initial`."""
        loading = Loading(check_name(stream), codec, fold, initial, strategy or unoptimized())
        return Decider(self.store, DeciderSteps(loading, self.settings, cache, attempts))

    def transact(
        self, *deciders: Decider[Any, Any], decide: Callable[..., Sequence[Iterable[Any]]], load: Load = LATEST
    ) -> list[Any]:
        """One decision over several streams, in one transaction: `decide(state, state…)` returns the events of each.

        A stream without events must not have changed.  Returns the states afterwards."""
        steps = transact([d.deciding for d in deciders], lambda states: (None, decide(*states)), load)
        return self.store.run(steps)[1]

    def streams(self, category: str | None = None, *, after: str | None = None) -> Iterator[str]:
        """The names of all streams, or of a category's, after the stream `after`, as they are found.

        Goes through the whole table, a page at a time: for people and projections, not for each request."""
        return listing.streams(self.store, category, after)

    def categories(self) -> dict[str, int]:
        """Every category, and how many streams it has.  Goes through the whole table, as `streams` does."""
        return listing.categories(self.store)

    def project(
        self, streams: str | Iterable[str], codec: Codec[E], fold: Callable[[S, E], S], initial: S
    ) -> dict[str, S]:
        """The state of each stream of a category, by the id in its name; or of some streams of one category.

        `events.project("Cart", codec, fold, initial)["42"]` is the state of "Cart-42"."""
        names = self.streams(streams) if isinstance(streams, str) else one_category(streams)
        return {name.partition("-")[2]: self.decider(name, codec, fold, initial).state() for name in names}


def one_category(names: Iterable[str]) -> Iterator[str]:
    """Streams of one category, which their ids tell apart; a stream of another category is refused."""
    first = None
    for name in names:
        category = split_name(name)[0]
        first = first or category
        if category != first:
            raise BadInput(f"{name!r} is of another category than {first!r}: project one category at a time")
        yield name


class StreamChange:
    """One stream's part of an append to several; `stream.change` and `stream.expect` make it."""

    def __init__(self, stream: str, events: Sequence[Event], unfolds: Sequence[Event], expected: int | None) -> None:
        self.stream, self._events, self._unfolds, self._expected = stream, events, unfolds, expected

    def part(self, settings: AppendSettings) -> StreamAppend:
        """The part, checked and encoded."""
        if self._events or self._unfolds or self._expected is None:
            return part(self.stream, self._events, self._unfolds, settings, expected=self._expected)
        return StreamAppend(self.stream, None, check_version(self.stream, self._expected))


class Stream:
    """One stream.  It remembers the Tip it saw last, so an append is one call to storage."""

    def __init__(self, events: Events, name: str) -> None:
        self.name, self._events = name, events
        self._tip: Tip | None = None

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    @property
    def category(self) -> str:
        """The part of its name before the first '-'."""
        return split_name(self.name)[0]

    def append(
        self, events: Sequence[Event] = (), *, expected: int | None = None, unfolds: Sequence[Event] = ()
    ) -> int:
        """Append events, all or nothing, and replace the unfolds; returns the stream's version afterwards.

        With `expected`, a stream at another version is a `VersionConflict`, unless the stream has exactly these events
        (by their ids) there already.  Without it the events go to the end, wherever that is."""
        return self._events.store.run(self.appending(events, expected, unfolds))

    def appending(self, events: Sequence[Event], expected: int | None, unfolds: Sequence[Event]) -> Steps[int]:
        """The steps of `append`."""
        settings = self._events.settings
        new = part(self.name, events, unfolds, settings, expected=expected, seen=self._tip)
        (done,) = yield from commit([new], settings)
        self._tip = done.tip
        return done.version

    def change(
        self, events: Sequence[Event] = (), *, expected: int | None = None, unfolds: Sequence[Event] = ()
    ) -> StreamChange:
        """What `append` would write, as part of an append to several streams."""
        return StreamChange(self.name, events, unfolds, expected)

    def expect(self, version: int) -> StreamChange:
        """The condition that this stream is at a version, as part of an append to several streams."""
        return StreamChange(self.name, (), (), check_version(self.name, version))

    def tip(self) -> Tip:
        """The stream's Tip: its version, etag, newest events and unfolds."""
        self._tip = self._events.store.run(read_tip(self.name))
        return self._tip

    @property
    def version(self) -> int:
        """How many events the stream has had."""
        return self.tip().version

    def read(
        self, start: int = 0, stop: int | None = None, *, backwards: bool = False, limit: int | None = None
    ) -> Iterator[Event]:
        """The events with start <= index < stop, oldest or newest first, at most `limit`, without pruned ones.

        Memory holds a page of about a megabyte at a time."""
        pages = self.pages(start, stop, backwards=backwards)
        return islice(chain.from_iterable(pages), check_limit(limit))

    def pages(self, start: int = 0, stop: int | None = None, *, backwards: bool = False) -> Iterator[list[Event]]:
        """The events of a range as `read` yields them, page by page."""
        return self._pages(pager(self.name, start, stop, backwards))

    def _pages(self, reader: Forward | Backward) -> Iterator[list[Event]]:
        while page := self._events.store.run(reader.page()):
            yield page

    def prune(self, until: int) -> Pruned:
        """Remove the events up to an index, that one included; see `Pruned`.  The version stays.

        With an archive, calves move there; events in the Tip stay until they have calved."""
        return self._events.pruned.run(self.pruning(until))

    def pruning(self, until: int) -> Steps[Pruned]:
        """The steps of `prune`."""
        if isinstance(until, bool) or not isinstance(until, int):
            raise BadInput(f"stream {self.name!r} is pruned up to an index, not {until!r}")
        archived = self._events.pruned is not self._events.store
        return prune(self.name, until, self._events.settings.new_id, calves_only=archived)


def pager(name: str, start: int, stop: int | None, backwards: bool) -> Forward | Backward:
    """The reader that gives a range of a stream page by page."""
    for bound in start, TIP if stop is None else stop:
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            raise BadInput(f"an index of stream {name!r} is a number from 0, not {bound!r}")
    return Backward(name, start, stop) if backwards else Forward(name, start, stop)


def check_limit(limit: int | None) -> int | None:
    """Refuse a limit of events to read that is not a count."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise BadInput(f"a limit is a number from 0, not {limit!r}")
    return limit
