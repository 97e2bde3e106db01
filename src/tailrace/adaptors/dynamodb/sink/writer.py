"""The writer: keeps tables equal to the source, and stores the offsets in the same transactions.

A batch of up to 99 items and 3.5 MB is one transaction.  A larger batch is several, of which the last stores the
offsets.  Each puts or deletes whole items by key, so if a run crashes between two transactions, the next run repairs
the tables by writing the whole batch again.  Each transaction takes the writer's turn, so a run that was thought dead
can write nothing once another has begun.  With `write = "batches"` the writer sends rows without transactions, and
takes the turn after each chunk of them: that is faster, and idempotent by key."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.dynamodb.pace import Pace
from tailrace.adaptors.dynamodb.service import DynamoService
from tailrace.adaptors.dynamodb.settings import DynamoSink
from tailrace.adaptors.dynamodb.sink import operations
from tailrace.adaptors.dynamodb.sink.apply import MAX_CHUNK_OPERATIONS, Applier, Target, Work, chunks
from tailrace.adaptors.dynamodb.sink.stage import UNIT_BYTES, Unit, stage
from tailrace.adaptors.dynamodb.sink.state import SinkState, Turn, WrittenTable, open_state
from tailrace.adaptors.dynamodb.sink.target_tables import TargetTables
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import BadInput, Conflict, NotThere, StorageError

BATCH_OPERATIONS = 5000
"""The most operations that are written without a transaction before the writer takes its turn again."""


class DynamoWriter(Writer):
    """Writes the tables of one region."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE})

    def __init__(self, settings: DynamoSink) -> None:
        self._settings = settings
        self._transactional = settings.write == "transactions"
        self._written: dict[str, WrittenTable] | None = None
        """The tables that this writer has written, as the state lists them; None: not read yet."""
        self._opened = False

    def __repr__(self) -> str:
        return f"DynamoWriter({self._settings!r})"

    @cached_property
    def _service(self) -> DynamoService:
        return DynamoService(*self._settings.place)

    @cached_property
    def _tables(self) -> TargetTables:
        return TargetTables(self._service, self._settings)

    @cached_property
    def _applier(self) -> Applier:
        return Applier(self._service, Pace(self._settings.write_units))

    def _state(self, pipeline: str, writer: str) -> SinkState:
        if not self._opened:
            open_state(self._service, self._settings.state)
            self._opened = True
        return SinkState(self._service, self._settings.state, pipeline, writer)

    def check(self) -> None:
        """Check region, endpoint and credentials, and create the state's table unless it exists."""
        self._state("", "")

    # -- offsets
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Return the epoch and the offsets of the last finished batch."""
        return self._state(pipeline, writer).read().fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """Do the same as `restore`, and keep earlier runs from finishing anything."""
        state = self._state(who.pipeline, who.writer)
        while True:
            turn = state.read()
            claimed = turn.fence.claim(who)
            if claimed is None or self._took(state, turn, claimed):
                return turn.fence.restored()

    def _took(self, state: SinkState, turn: Turn, fence: Fence | None, work: Sequence[Work] = ()) -> bool:
        """Take a turn and apply operations in one transaction; return False if another run has taken the turn.

        Then nothing was written."""
        mark = secrets.token_hex(8)
        try:
            self._applier.transact(work, state.next(turn, mark, fence))
        except (Conflict, StorageError) as error:
            # A transaction whose answer was lost may have happened, and its repetition then fails with the conflict.
            now = state.read()
            if now.mark == mark:
                return True
            if not isinstance(error, Conflict):
                raise
            return False
        return True

    def lost(self, who: Who) -> list[str]:
        """Return the tables of this writer that another program has dropped, created again or emptied."""
        written = self._state(who.pipeline, who.writer).tables()
        return [f"the table {one.table}" for one in written.values() if self._is_lost(one)]

    def _is_lost(self, one: WrittenTable) -> bool:
        try:
            if self._service.describe(one.table).id != one.id:
                return True
        except NotThere:
            return True
        return one.filled and not next(self._keys(one.table, 1), None)

    def forget(self, who: Who) -> None:
        """Delete the record of the tables that were written, so `lost` misses none of them."""
        self._written = None
        self._state(who.pipeline, who.writer).forget_tables()

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage the operations of these rows inside `Staged`."""
        return stage(rows)

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Convert the rows to operations without applying any."""
        for made in operations.batches(iter(rows), UNIT_BYTES):
            self._tables.name(made.namespace)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Apply the staged operations and store the offsets; a batch that is finished already changes nothing."""
        state = self._state(who.pipeline, who.writer)
        if state.read().fence.is_repeat(who, offsets):
            return
        units: list[Unit] = [unit for share in staged for unit in share.detail or ()]
        known = self._known(state)
        now = self._after(known, units, who)
        meanwhile = _meanwhile(known, now, units)
        self._written = None
        state.keep_tables({name: one for name, one in meanwhile.items() if known.get(name) != one})
        self._carry_out(state, chunks(_work(units, now), self._most), who, offsets)
        state.keep_tables({name: one for name, one in now.items() if meanwhile[name] != one})
        self._written = now

    @property
    def _most(self) -> int:
        return MAX_CHUNK_OPERATIONS if self._transactional else BATCH_OPERATIONS

    def _carry_out(
        self, state: SinkState, work: Iterator[list[Work]], who: Who, offsets: Mapping[str, Any] | None
    ) -> None:
        """Apply chunks one by one, and store the offsets with the last one."""
        chunk, further = next(work, []), next(work, None)
        while further is not None:
            self._one(state, chunk, who, offsets, last=False)
            chunk, further = further, next(work, None)
        self._one(state, chunk, who, offsets, last=True)

    def _one(
        self, state: SinkState, work: Sequence[Work], who: Who, offsets: Mapping[str, Any] | None, *, last: bool
    ) -> None:
        while True:
            turn = state.read()
            if offsets is None:
                turn.fence.admit(who)
            elif turn.fence.is_repeat(who, offsets):
                return
            fence = turn.fence.finish(who, offsets) if last and offsets is not None else None
            if self._transactional:
                done = self._took(state, turn, fence, work)
            else:
                self._applier.write(work)
                done = self._took(state, turn, fence)
            if done:
                return

    def _known(self, state: SinkState) -> dict[str, WrittenTable]:
        if self._written is None:
            self._written = state.tables()
        return self._written

    def _after(self, known: Mapping[str, WrittenTable], units: Sequence[Unit], who: Who) -> dict[str, WrittenTable]:
        """Return the tables that are written once this batch is finished."""
        now = dict(known)
        for unit in units:
            one = self._tables.prepare(unit.namespace, unit.schema, who, now)
            filled = not unit.deletes and (unit.puts > 0 or one.filled)
            now[unit.namespace] = one._replace(filled=filled)
        return now

    # -- commands
    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Delete all items of a namespace's table; `Fenced` once a newer run has claimed the sink."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: DynamoDB has no command {command.name!r}; there is: truncate")
        state, found = self._state(who.pipeline, who.writer), self._tables.found(namespace)
        state.read().fence.admit(who)
        if found is None:
            return
        if (before := self._known(state).get(namespace)) is not None:
            self._written = None
            state.keep_tables({namespace: before._replace(filled=False)})
        target = Target(namespace, found.name)
        keys = (Work(target, {"k": key}) for key in self._keys(found.name))
        self._carry_out(state, chunks(keys, self._most), who, None)

    def _keys(self, table: str, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the keys of all items of a table; `limit` is the page size of the scan."""
        schema = self._service.describe(table).schema
        names = {"#h": schema.hash, **({"#r": schema.range} if schema.range is not None else {})}
        after: dict[str, Any] = {} if limit is None else {"Limit": limit}
        while True:
            page = self._service.ask(
                "Scan",
                TableName=table,
                ConsistentRead=True,
                ProjectionExpression=", ".join(names),
                ExpressionAttributeNames=names,
                **after,
            )
            yield from page["Items"]
            if not page.get("LastEvaluatedKey"):
                return
            after = {**after, "ExclusiveStartKey": page["LastEvaluatedKey"]}

    def close(self) -> None:
        """Close the connections."""
        if "_service" in self.__dict__:
            self._service.close()


def _meanwhile(
    known: Mapping[str, WrittenTable], now: Mapping[str, WrittenTable], units: Sequence[Unit]
) -> dict[str, WrittenTable]:
    """Return the tables as they may be at any moment of this batch: filled only if they were and lose no item."""
    emptied = {unit.namespace for unit in units if unit.deletes}
    had = {name for name, one in known.items() if one.filled}
    return {name: one._replace(filled=one.filled and name in had and name not in emptied) for name, one in now.items()}


def _work(units: Sequence[Unit], tables: Mapping[str, WrittenTable]) -> Iterator[Work]:
    for unit in units:
        target = Target(unit.namespace, tables[unit.namespace].table)
        for operation in unit.operations():
            yield Work(target, operation)
