"""Shards: the reader of one shard of a change stream, which reads page by page from a place on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeAlias

from tailrace.errors import IteratorExpired, NotThere, PositionLost, Trimmed
from tailrace.storage.changes import Change, Changes, Read, Start
from tailrace.streams.token import ShardPlace

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Makes one request to the service, and repeats it while the service refuses it for now."""

FIRST_CALLS = 5
"""Reads in the first poll of a shard: it may answer some with nothing before it comes to its first change."""
KEPT_SECONDS = 24 * 3600
"""How long changes are kept."""
AHEAD_FROM = 100
"""A page with at least this many changes probably has another behind it; reading ahead at the end of a shard wastes a
call."""


def untouched(changes: Changes, ask: Ask, shard: str) -> bool:
    """Whether nothing was ever written to a shard: False also where the service does not tell, as DynamoDB, and where
    the shard is gone."""
    try:
        return bool(ask(partial(changes.latest, shard)) == ("TRIM_HORIZON", None))
    except NotThere:
        return False


class ShardReader:
    """Buffers the next changes of one shard.  `after` moves when a change is taken or passed over, never before.

    A `fresh` reader comes to a place of "latest" now, by an iterator; a later one finds the place by its time.  Only
    one thread at a time may use a reader.  `order` breaks ties between shards: a shard that was found earlier comes
    first.  With `pool`, a thread of the pool reads the page after a full one ahead.  `asked` is when the shard was last
    read up to the place, by the service's clock: now, unless the place comes from a token.
    """

    def __init__(
        self,
        changes: Changes,
        place: ShardPlace,
        order: int,
        ask: Ask,
        *,
        fresh: bool = False,
        asked: float | None = None,
        pool: Callable[[], Executor] | None = None,
    ) -> None:
        self._changes, self._ask, self.order, self._pool = changes, ask, order, pool
        self.shard, self.parent = place.shard, place.parent
        self.after, self.since, self.latest = place.after, place.since, place.latest
        self._at_end = fresh and place.latest
        self.asked = changes.time() if asked is None else asked
        """When the service last answered for this shard, by its clock."""
        self.buffer: deque[Change] = deque()
        self.exhausted = False
        """Whether the shard is closed and its last page is in the buffer."""
        self.answered = 0
        """The round in which the shard last answered while its buffer was empty; 0: it must be asked."""
        self._iterator: str | None = None
        self._ahead: Future[Read] | None = None
        """The page at the iterator, if a thread is reading it ahead."""
        self._ahead_since = self.asked
        """When it was asked for."""
        self._polled = False

    @property
    def place(self) -> ShardPlace:
        """The place from which another reader can go on."""
        return ShardPlace(self.shard, self.parent, self.after, self.since, self.latest)

    @property
    def ended(self) -> bool:
        """Whether the shard is closed and everything in it was taken."""
        return self.exhausted and not self.buffer

    @property
    def rests_on_iterator(self) -> bool:
        """Whether only the iterator knows the place: no sequence number leads back to it."""
        return self._at_end and self.after is None and not self.buffer and not self.exhausted

    def take(self) -> Change:
        """Return the next change; it counts as delivered."""
        change = self.buffer.popleft()
        self.after, self.since, self.latest = change.sequence, None, False
        return change

    def take_many(self, count: int) -> list[Change]:
        """Return the next `count` changes; they count as delivered."""
        popped = self.buffer.popleft
        changes = [popped() for _ in range(count)]
        self.after, self.since, self.latest = changes[-1].sequence, None, False
        return changes

    def poll(self, limit: int) -> None:
        """Ask for the next page, if nothing is buffered and the shard has not ended."""
        calls = 1 if self._polled else FIRST_CALLS
        self._polled = True
        while calls and not self.buffer and not self.exhausted:
            calls -= 1
            self._read(limit)

    def open(self) -> None:
        """Create the iterator now, so that the reader sees all changes from here on, even if the first poll comes
        late."""
        if self._iterator is None:
            self._iterator = self._make_iterator()

    def _read(self, limit: int) -> None:
        try:
            page = self._page(limit)
        except Trimmed as error:
            raise self._lost(str(error)) from error
        except NotThere as error:
            self._check_age(error)
            raise
        self._iterator = page.next
        self.exhausted = page.next is None
        self._keep(page.changes)
        if self._pool and page.next is not None and len(page.changes) >= AHEAD_FROM:
            self._ahead_since = self._changes.time()
            self._ahead = self._pool().submit(self._changes.read, page.next, limit)

    def _page(self, limit: int) -> Read:
        ahead, self._ahead = self._ahead, None
        # If reading ahead failed, the page is read again below, where errors are handled.
        if ahead is not None and ahead.exception() is None:
            self.asked = self._ahead_since
            return ahead.result()
        while True:
            self.open()
            iterator = self._iterator
            assert iterator is not None
            try:
                page: Read = self._ask(lambda: self._changes.read(iterator, limit))  # noqa: B023
            except IteratorExpired:
                self._iterator, self._at_end = None, False
            else:
                self._note_answer()
                return page

    def _note_answer(self) -> None:
        """Note when the service answered; `PositionLost` if that tells that changes from before may be gone."""
        now = self._changes.time()
        old = self.after is None and now - self.asked > KEPT_SECONDS
        if old and not untouched(self._changes, self._ask, self.shard):
            silent = (now - self.asked) / 3600
            raise self._lost(f"nothing of it was read in {silent:.0f} hours, and changes are kept for 24 hours")
        self.asked = now

    def _keep(self, changes: Sequence[Change]) -> None:
        passed = 0
        if self.since is not None and not self._at_end:
            # Everything after the first young change is kept, whatever its time: times may run back in a shard.
            young = (n for n, change in enumerate(changes) if change.created_at.timestamp() * 1000 >= self.since)
            passed = next(young, len(changes))
        if passed:
            self.after = changes[passed - 1].sequence
        if passed < len(changes):
            self.since = self.since if self._at_end else None
            self.buffer.extend(changes[passed:])

    def _make_iterator(self) -> str:
        start: Start = "TRIM_HORIZON"
        if self.after is not None:
            start = "AFTER_SEQUENCE_NUMBER"
        elif self._at_end:
            start = "LATEST"
        iterator: str = self._ask(lambda: self._changes.iterator(self.shard, start, self.after))
        return iterator

    def _check_age(self, error: NotThere) -> None:
        """Raise `PositionLost` if a shard that is gone was last read so long ago that changes of its children may be
        gone, too."""
        self._ask(self._changes.shards)  # whose answer says what time it is for the service
        silent = self._changes.time() - self.asked
        if silent > KEPT_SECONDS:
            why = f"the shard is gone, and was last read {silent / 3600:.0f} hours ago; changes are kept for 24 hours"
            raise self._lost(why) from error

    @property
    def where(self) -> str:
        """The place in the shard, for errors."""
        return "at the beginning of" if self.after is None else f"after {self.after} in"

    def _lost(self, why: str) -> PositionLost:
        return PositionLost(
            f"the stream cannot go on {self.where} shard {self.shard}: {why}. "
            'move_to("trim_horizon") goes on with what is kept, and the table itself has the present state'
        )
