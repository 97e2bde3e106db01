"""The stream of one table, read through `tailrace.streams` as one sequence of all shards, which keeps the order of each
item's changes also when shards split."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from tailrace.adaptors.dynamodb.errors import AFRESH
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.adaptors.dynamodb.source.position import StreamPosition, stored, token_of
from tailrace.adaptors.dynamodb.source.progress import ShardProgress, WatchedChanges
from tailrace.errors import BadToken, HomeError, NotReady, PositionLost
from tailrace.storage.changes import Change
from tailrace.storage.limits import item_size
from tailrace.streams.patience import Patience
from tailrace.streams.stream import Stream

_log = logging.getLogger("tailrace")
PATIENCE_SECONDS = 5.0
"""How long requests to a stream that does not answer are repeated, before the caller gets `Unavailable`."""
MAX_BATCH_BYTES, CHANGES_AT_ONCE = 16 * 1024 * 1024, 200
"""About the most bytes that `take` returns, and the number of changes after which it checks their size."""
REFRESH_SECONDS = 300.0
"""Seconds after which the position of a quiet table is renewed: an old one does not show what was trimmed since."""
LATE_SECONDS, WARN_SECONDS = 12 * 3600.0, 3600.0
"""How far behind a reader must be for a warning about the stream's 24 hours, and the seconds between two warnings."""


def first_position(service: DynamoService, table: TableDescription) -> StreamPosition:
    """Return the position of a stream's end: all later changes follow it, and perhaps a few from just before."""
    with _guarded(table.name):
        changes = service.changes(table.name, table.schema)
        with Stream(changes, "latest", table=table.name, make=lambda change: change, patience=_patience()) as stream:
            return stored(table.id, stream.token)


def _patience() -> Patience:
    return Patience(PATIENCE_SECONDS)


@contextlib.contextmanager
def _guarded(table: str) -> Iterator[None]:
    """Translate errors about a stream in a block into errors that say what to do about the pipeline."""
    try:
        yield
    except (PositionLost, BadToken) as error:
        raise lost(table, str(error).partition(". ")[0]) from None
    except HomeError as error:
        raise NotReady(str(error)) from None


def lost(table: str, why: str) -> PositionLost:
    """Return the error for changes of a table that no stream has any more."""
    return PositionLost(f"table {table}: {why}; nobody can say what changed since. {AFRESH}")


class TableStream:
    """The changes of one table from a position on.  Only one thread may use it at a time.

    After an error it must not be used any more: a new one continues from the position that the pipeline has stored."""

    def __init__(
        self, service: DynamoService, table: TableDescription, position: StreamPosition, progress: ShardProgress
    ) -> None:
        self.table, self.position, self._progress = table, position, progress
        self._taken_at, self._warned, self._shards = time.monotonic(), 0.0, set[str]()
        changes = self._changes = WatchedChanges(service.changes(table.name, table.schema), table.name, progress)
        self.read_some = False
        """Whether the last `take` read any changes from DynamoDB, also changes from before the position."""
        with _guarded(table.name):
            token = token_of(table.name, position)
            self._stream = Stream(changes, token, table=table.name, make=lambda change: change, patience=_patience())
            self._clock = changes.time
            self._check()

    def take(self, most: int) -> list[Change]:
        """Return up to `most` next changes and move `position` past them; raise `PositionLost` if some were trimmed."""
        with _guarded(self.table.name):
            before = self._changes.given
            found = self._some(most)
            self.read_some = self._changes.given != before
            self._check()
            moved = found or self._stream.shards != self._shards
            if moved or time.monotonic() - self._taken_at > REFRESH_SECONDS:
                self._taken_at, self._shards = time.monotonic(), self._stream.shards
                self.position = stored(self.table.id, self._stream.token)
                self._progress.keep(self.table.name, self._shards)
        if found:
            self._warn(found[-1])
        return found

    def _some(self, most: int) -> list[Change]:
        """Return up to `most` changes of about `MAX_BATCH_BYTES` together: one item may have 400 KB."""
        found: list[Change] = []
        size = 0
        while len(found) < most and size < MAX_BATCH_BYTES:
            some = self._stream.take(min(CHANGES_AT_ONCE, most - len(found)))
            found += some
            size += sum(item_size(change.new or {}) + item_size(change.old or {}) for change in some)
            if len(some) < CHANGES_AT_ONCE:
                break
        return found

    def _check(self) -> None:
        """Raise `PositionLost` if a shard was trimmed before it was read to its end: it may have had more changes."""
        if self._stream.trimmed:
            raise lost(
                self.table.name,
                f"its shard {self._stream.trimmed[0]} was trimmed before it was read to the end; changes are kept "
                "for 24 hours",
            )

    def _warn(self, change: Change) -> None:
        """Log a warning if a change is so old that the reader may soon lose changes to the limit of 24 hours."""
        behind = self._clock() - change.created_at.timestamp()
        if behind > LATE_SECONDS and (not self._warned or time.monotonic() - self._warned > WARN_SECONDS):
            self._warned = time.monotonic()
            _log.warning(
                "table %s: its stream is read %.0f hours behind, and keeps changes for 24: what is not read by then is "
                "lost; see what holds the pipeline back: tailrace status",
                self.table.name,
                behind / 3600,
            )

    def close(self) -> None:
        """Close the stream with its threads, and stop tracking its shards."""
        self._stream.close()
        self._progress.keep(self.table.name, set())
