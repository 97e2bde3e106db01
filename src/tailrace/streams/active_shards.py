"""Active shards: those that a stream reads now, which of them goes next, and which are begun when one has ended.

`merge` says which of several heads goes first, `lineage` which shards may be read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from tailrace.errors import NotThere, PositionLost
from tailrace.storage.changes import Change, Changes, Shard
from tailrace.streams.lineage import Lineage
from tailrace.streams.merge import Headless, Merge
from tailrace.streams.patience import Patience
from tailrace.streams.shard import ShardReader
from tailrace.streams.token import ShardPlace

HEARTBEAT_SECONDS = 12 * 60
DISCOVER_SECONDS = 60.0
MAX_PAGES = 32
"""The most pages in one batch of changes: a page has at most 1 MB, but 1,000 changes of large items have 800."""
CHILDREN_SECONDS = 1.0
"""Seconds between requests for the children of a shard that has ended."""

log = logging.getLogger(__name__)


class ActiveShards:
    """The shards of a stream, each read from its place on.  Only one thread at a time may use them.

    A head may go when each shard without one said that it had nothing, in the round that brought the head or after it.
    So a shard that runs dry is asked again, but not the others that are dry: the heads that wait are older than their
    answers."""

    def __init__(
        self,
        changes: Changes,
        table: str,
        page: int,
        patience: Patience,
        clock: Callable[[], float],
        pool: Callable[[], Executor] | None,
        *,
        heartbeat: bool,
    ) -> None:
        self._changes, self._table, self._page, self._patience = changes, table, page, patience
        self._clock, self._pool, self._automatic, self._beaten = clock, pool, heartbeat, clock()
        self.lineage, self._merge, self._headless = Lineage(), Merge(), Headless()
        self.readers: dict[str, ShardReader] = {}
        self.trimmed: list[str] = []
        """Shards that were trimmed before they were read to the end."""
        self._order = self._rounds = self._silent = self._pages = 0
        self._passing: dict[str, int] = {}
        """By finished shard: the time before which its children must pass over changes, too."""
        self._ended: list[ShardReader] = []
        """Shards read to their end since the last round."""
        self._orphans: dict[str, ShardReader] = {}
        """Shards read to their end whose children are not known yet."""
        self._look()

    # -- beginning
    def begin(self, place: ShardPlace, *, fresh: bool = False, asked: float | None = None) -> ShardReader:
        """Begin to read a shard from a place on; returns its reader."""
        reader = ShardReader(self._changes, place, self._order, self.ask, fresh=fresh, asked=asked, pool=self._pool)
        self._order += 1
        self.readers[place.shard] = reader
        self._headless.ran_dry(reader)
        return reader

    def begin_ready(self, since: int | None = None, among: Sequence[Shard] | None = None) -> None:
        """Begin every shard, of all or of `among`, whose older shards were all read; `since` is the time before which
        they pass over changes."""
        for shard in self.lineage.ready(self.readers, among):
            inherited = self._passing.get(shard.parent or "", since)
            self.begin(ShardPlace(shard.id, shard.parent, since=inherited))

    # -- taking
    def first(self) -> ShardReader | None:
        """Return the shard whose head goes next, or None if nothing is new right now.  Asks the service if it must."""
        if not self._merge or self._merge.first().answered > self._silent:
            self.ask_round()
        return self._merge.first() if self._merge else None

    def ready(self) -> ShardReader | None:
        """Return the shard whose head goes next; None if the service must be asked first."""
        return self._merge.first() if self._merge and self._merge.first().answered <= self._silent else None

    def take(self, most: int) -> list[Change]:
        """Take up to `most` changes, in order, and count them as delivered.  Returns fewer where there are no more
        right now, after `MAX_PAGES` pages, and where the service fails; if it still fails, the next call raises."""
        taken: list[Change] = []
        last = self._pages + MAX_PAGES
        while len(taken) < most and not (taken and self._pages >= last):
            try:
                reader = self.first()
            except Exception:
                if taken:
                    break
                raise
            if reader is None:
                break
            taken += reader.take_many(self._merge.run(most - len(taken)))
            self._advance(reader)
        return taken

    def take_first(self, reader: ShardReader) -> None:
        """Count the head of the first shard as delivered."""
        reader.take()
        self._advance(reader)

    def _advance(self, reader: ShardReader) -> None:
        """Make the next change of the first shard its head, after some of its changes were taken."""
        if not self._merge.advance():
            self._silent = 0
            self._run_dry(reader)

    # -- asking
    def ask_round(self) -> None:
        """Ask shards without a head until the first head may go, or all of them if there is no head; each at most
        once."""
        if self._automatic and self._clock() - self._beaten > HEARTBEAT_SECONDS:
            self.heartbeat()
        self._rounds += 1
        while True:
            self._poll(self._unanswered())
            self._retire()
            if not self._unanswered():
                break
        self._silent = self._headless.silent_since(self._rounds)

    def heartbeat(self) -> None:
        """Ask the shards whose place is known only to an iterator, before it expires."""
        self._beaten = self._clock()
        self._rounds += 1
        self._poll([reader for reader in self.readers.values() if reader.rests_on_iterator])

    def ask(self, request: Callable[[], Any]) -> Any:
        """Make one request, and repeat it while the service only refuses it for now or does not answer."""
        return self._patience.ask(request, f"the stream of table {self._table!r}")

    def _unanswered(self) -> list[ShardReader]:
        """The shards that must be asked in this round before the first head may go."""
        return self._headless.silent_before(self._merge.first().answered if self._merge else self._rounds)

    def _poll(self, readers: list[ShardReader]) -> None:
        """Ask these shards.  Merge the answers of all others before raising the error of one."""
        failures = list(self._polled(readers))
        for reader, failure in zip(readers, failures, strict=True):
            if failure is None:
                self._answered(reader)
            elif isinstance(failure, NotThere):
                self.note_trimmed(reader.shard)
                self._finish(reader)
                self._looked = -math.inf  # its children may be new, too
        for failure in failures:
            if failure is not None and not isinstance(failure, NotThere):
                raise failure

    def _polled(self, readers: list[ShardReader]) -> Iterator[Exception | None]:
        if len(readers) > 1 and self._pool is not None:
            return self._pool().map(self._poll_one, readers)
        return map(self._poll_one, readers)

    def _poll_one(self, reader: ShardReader) -> Exception | None:
        try:
            reader.poll(self._page)
        except Exception as failure:
            return failure
        return None

    def _answered(self, reader: ShardReader) -> None:
        """Sort in a shard that was asked and had no head: it has one now, or it has nothing, or it is at its end."""
        if reader.buffer:
            self._pages += 1
            reader.answered = self._rounds
            self._headless.remove(reader)
            self._merge.add(reader)
        elif reader.exhausted:
            self._run_dry(reader)
        else:
            self._headless.said_nothing(reader, self._rounds)

    def _run_dry(self, reader: ShardReader) -> None:
        """Sort in a shard whose buffer is empty: it has ended, or must be asked again."""
        if reader.exhausted:
            self._headless.remove(reader)
            self._ended.append(reader)
        else:
            self._headless.ran_dry(reader)

    # -- ending
    def _retire(self) -> None:
        """Finish the shards that were read to the end and whose children are known, and begin these children."""
        ended, self._ended = self._ended, []
        self._orphans |= {reader.shard: reader for reader in ended}
        self._finish_parents(ended)
        orphaned = any(reader.shard in self._orphans for reader in ended)
        if orphaned or self._clock() - self._looked >= (CHILDREN_SECONDS if self._orphans else DISCOVER_SECONDS):
            self._look()
            self._finish_parents(list(self._orphans.values()))
            self.begin_ready()
        if self._orphans and len(self._orphans) == len(self.readers):
            self._check_current()

    def _finish_parents(self, ended: list[ShardReader]) -> None:
        for reader in ended:
            if self.lineage.children(reader.shard):
                self._finish(reader)

    def _finish(self, reader: ShardReader) -> None:
        self.lineage.finished.add(reader.shard)
        if reader.since is not None and not reader.latest:
            self._passing[reader.shard] = reader.since
        self._headless.remove(reader)
        self._orphans.pop(reader.shard, None)
        del self.readers[reader.shard]
        self.begin_ready(among=self.lineage.children(reader.shard))

    def note_trimmed(self, shard: str) -> None:
        """Note and log that a shard was trimmed before it was read to its end."""
        log.warning("shard %s of table %s was trimmed; its children are read instead", shard, self._table)
        self.trimmed.append(shard)

    def _look(self) -> None:
        self._looked = self._clock()
        try:
            self.lineage.look(self.ask(self._changes.shards))
        except NotThere:  # some servers forget a stream as soon as it is switched off
            self._check_current()
            raise

    def _check_current(self) -> None:
        """Raises `PositionLost` if the stream was switched off or replaced, and `UnknownTable` if the table is gone."""
        if (current := self.ask(self._changes.current)) != self._changes.stream:
            why = "the table has another one by now" if current else "it was switched off; switch it on again"
            raise PositionLost(
                f"the stream of table {self._table!r} has ended, and all of it that is left was delivered: {why}. What "
                'happened in between is in no stream: start at "trim_horizon", and compare with the table itself'
            )
