"""Decoding: turns the log's messages, transaction by transaction, into rows of tables.

The collector gets whole transactions only.  The server streams a large transaction before it is decided; the decoder
keeps the messages in a file, and decodes them when the transaction commits, without the parts that were rolled back.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Protocol

from tailrace.adaptors.postgres.source import pgoutput as pg
from tailrace.adaptors.postgres.source.pgoutput import UNSET, Relation, Row, read_row, u32
from tailrace.adaptors.rows.overflow import temporary_file_failed
from tailrace.log.record import Op

MAX_TRANSACTION_BYTES_IN_MEMORY = 8 * 1024 * 1024
"""The most bytes of a streamed transaction that stay in memory; a larger one goes to a file."""
_FRAME = struct.Struct(">II")


class FollowedTable(Protocol):
    """A table whose changes are wanted.  The collector implements it."""

    keys: tuple[int, ...]
    """The numbers of the columns that make up the id; all columns if there are none."""

    def add(self, op: Op, row: Row, *, moved: bool = False) -> None:
        """Add a row that was decoded.  `moved`: the row has a new id, though its fields may be older."""

    def truncate(self) -> None:
        """Note that the log has a TRUNCATE of the table."""


class Collector(Protocol):
    """What the decoder feeds with the changes of transactions, in order.  The decoder adds to `size` the bytes of each
    message."""

    size: int

    def begin(self, lsn: int, time: int, xid: int) -> None:
        """Begin a transaction, whose commit is at `lsn`."""

    def relation(self, relation: Relation) -> FollowedTable | None:
        """Take note of a table as the log describes it from now on; return None if its changes are not wanted."""

    def relation_again(self, relation: Relation) -> None:
        """Take note that the log has described an unchanged table again: a part of it, such as a partition, is new to
        the log."""

    def commit(self, end: int, time: int) -> None:
        """End a transaction; the log goes on at `end`."""


class Decoder:
    """Feeds a collector from the log's messages.  `open`: a transaction has begun and not ended."""

    def __init__(self, collector: Collector) -> None:
        self.open = False
        self._collector = collector
        self._relations: dict[int, tuple[Relation, FollowedTable | None]] = {}
        self._streams: dict[int, Streamed] = {}
        self._streaming: Streamed | None = None
        self._do: dict[int, Callable[[bytes, int], None]] = {
            pg.BEGIN: self._begin,
            pg.COMMIT: self._commit,
            pg.RELATION: self._relation,
            pg.INSERT: self._insert,
            pg.UPDATE: self._update,
            pg.DELETE: self._delete,
            pg.TRUNCATE: self._truncate,
            pg.STREAM_START: self._stream_start,
            pg.STREAM_COMMIT: self._stream_commit,
            pg.STREAM_ABORT: self._stream_abort,
        }

    def feed(self, data: bytes, at: int) -> None:
        """Decode one message, whose kind is at `at`."""
        kind = data[at]
        self._collector.size += len(data)
        if self._streaming is not None:
            if kind == pg.STREAM_STOP:
                self._streaming = None
            else:
                self._streaming.add(data, at)
            return
        do = self._do.get(kind)
        if do is not None:
            do(data, at)

    @property
    def between(self) -> bool:
        """Whether the decoder is between two transactions, or two parts of a streamed one."""
        return not self.open and self._streaming is None

    def close(self) -> None:
        """Discard transactions that are not decided."""
        for streamed in self._streams.values():
            streamed.close()

    # -- transactions
    def _begin(self, data: bytes, at: int) -> None:
        self._collector.begin(*pg.read_begin(data, at))
        self.open = True

    def _commit(self, data: bytes, at: int) -> None:
        commit = pg.read_commit(data, at)
        self._collector.commit(commit.end, commit.time)
        self.open = False

    def _stream_start(self, data: bytes, at: int) -> None:
        (xid,) = u32(data, at + 1)
        if xid not in self._streams:
            self._streams[xid] = Streamed()
        self._streaming = self._streams[xid]

    def _stream_abort(self, data: bytes, at: int) -> None:
        xid, part = struct.unpack_from(">II", data, at + 1)
        if xid != part and xid in self._streams:
            self._streams[xid].aborted.add(part)
        elif xid in self._streams:
            self._streams.pop(xid).close()

    def _stream_commit(self, data: bytes, at: int) -> None:
        (xid,) = u32(data, at + 1)
        commit = pg.read_commit(data, at + 4)
        self._collector.begin(commit.lsn, commit.time, xid)
        self.open = True
        streamed = self._streams.pop(xid, None)
        if streamed is not None:
            streamed.replay(self.feed)
            streamed.close()
        self._collector.commit(commit.end, commit.time)
        self.open = False

    # -- tables
    def _relation(self, data: bytes, at: int) -> None:
        relation = pg.read_relation(data, at)
        known = self._relations.get(relation.oid)
        # With another identity the message does not name the key, so an equal message may mean another key.
        if known is None or known[0] != relation or relation.identity not in "di":
            self._relations[relation.oid] = relation, self._collector.relation(relation)
        else:
            self._collector.relation_again(relation)

    def renew(self) -> None:
        """Ask the collector again which tables are wanted."""
        for oid, (relation, _) in self._relations.items():
            self._relations[oid] = relation, self._collector.relation(relation)

    def _truncate(self, data: bytes, at: int) -> None:
        for oid in pg.read_truncate(data, at):
            target = self._relations[oid][1]
            if target is not None:
                target.truncate()

    # -- rows
    def _insert(self, data: bytes, at: int) -> None:
        target = self._relations[u32(data, at + 1)[0]][1]
        if target is not None:
            target.add(Op.INSERT, read_row(data, at + 6)[0])

    def _update(self, data: bytes, at: int) -> None:
        target = self._relations[u32(data, at + 1)[0]][1]
        if target is None:
            return
        tag, old, at = data[at + 5], None, at + 6
        if tag != pg.NEW:
            old, at = read_row(data, at)
            at += 1
        new, _ = read_row(data, at)
        if old is None:
            target.add(Op.UPDATE, new)
        else:
            _changed(target, _known(target, old, tag), new)

    def _delete(self, data: bytes, at: int) -> None:
        target = self._relations[u32(data, at + 1)[0]][1]
        if target is not None:
            target.add(Op.DELETE, _known(target, read_row(data, at + 6)[0], data[at + 5]))


def _known(target: FollowedTable, old: Row, tag: int) -> Row:
    """The old row of a change.  If the server sent only its key, the other fields are unset, not null."""
    if tag == pg.OLD:
        return old
    return [value if n in target.keys else UNSET for n, value in enumerate(old)]


def _changed(target: FollowedTable, old: Row, new: Row) -> None:
    """Add an update that came with the old row.  The old row fills the fields that the server did not send; a new id
    makes the update a delete and an insert."""
    new = [before if value is UNSET else value for before, value in zip(old, new, strict=True)]
    keys = target.keys or range(len(new))
    if all(old[n] == new[n] for n in keys):
        if target.keys:
            target.add(Op.UPDATE, new)
        return
    target.add(Op.DELETE, old)
    target.add(Op.INSERT, new, moved=True)


class Streamed:
    """A transaction that is not decided yet: a file of messages, each with the subtransaction that it belongs to."""

    def __init__(self) -> None:
        self.aborted: set[int] = set()
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(MAX_TRANSACTION_BYTES_IN_MEMORY)  # noqa: SIM115

    def add(self, data: bytes, at: int) -> None:
        """Store a message of a streamed transaction, which has the number of its subtransaction after its kind."""
        (part,) = u32(data, at + 1)
        rest = data[at + 5 :]
        _checked(self._file.write, _FRAME.pack(part, 1 + len(rest)) + data[at : at + 1] + rest)

    def replay(self, feed: Callable[[bytes, int], None]) -> None:
        """Feed all stored messages except those of subtransactions that were rolled back."""
        _checked(self._file.seek, 0)
        while frame := _checked(self._file.read, _FRAME.size):
            part, size = _FRAME.unpack(frame)
            message = _checked(self._file.read, size)
            if part not in self.aborted or message[0] == pg.RELATION:
                feed(message, 0)

    def close(self) -> None:
        """Delete the file of stored messages."""
        with suppress(OSError):  # it writes what it still holds, even if the disk is full
            self._file.close()


def _checked(call: Callable[[Any], Any], given: Any) -> Any:
    try:
        return call(given)
    except OSError as error:
        raise temporary_file_failed(error) from error
