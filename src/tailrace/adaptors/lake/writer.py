"""The writer of a lake sink: writes many tables in one batch, exactly once (see ledger).  A subclass opens the lake."""

from __future__ import annotations

import logging
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.lake import staging
from tailrace.adaptors.lake.ledger import STEPS_PER_BATCH, Ledger, State, Work, WrittenTable
from tailrace.adaptors.lake.names import ledger_of
from tailrace.adaptors.lake.schemas import completed, conformed, first_columns, growth, in_order
from tailrace.adaptors.lake.settings import LakeSettings
from tailrace.adaptors.lake.stores import OWN
from tailrace.adaptors.lake.table import Lake, LakeTable, Mark, Merged, Raced
from tailrace.adaptors.lake.units import Share, Unit
from tailrace.adaptors.rows.rows import columns_of, keys_of
from tailrace.adaptors.sinks import missing_targets
from tailrace.adaptors.sinks.folding import folded_batches
from tailrace.errors import BadInput, Fenced, NotReady, TailraceError, Unavailable

_log = logging.getLogger("tailrace")
APPEND_SECONDS, MERGE_SECONDS = 10.0, 60.0
"""Seconds between two batches, unless the settings say otherwise."""
MERGE_BYTES = 128 * 1024 * 1024
"""About how much one commit merges into a table."""
KEPT_BYTES = 64 * 1024 * 1024
"""How much of a batch stays in memory between its check and its commits; the rest is read from staging twice."""
ATTEMPTS = 20
"""How often a commit to a table is sent when another program commits in between."""
TIDY_SECONDS = 600.0


@dataclass(slots=True)
class Prepared:
    """Work for one table, whose rows were checked against the table's columns."""

    table: LakeTable
    work: Work
    batches: list[Merged] | list[pa.RecordBatch] | None = None
    """The converted rows, if they are few enough to stay in memory."""


class LakeWriter(Writer):
    """Writes the tables of one lake."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE})

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._merges = settings.keep == "state"
        every = MERGE_SECONDS if self._merges else APPEND_SECONDS
        self.every = every if settings.every is None else settings.every
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._tidied = 0.0
        self._done = ""
        """The mark of the last state whose pending work has reached its tables."""

    @cached_property
    def _lake(self) -> Lake:
        return self._open()

    @abstractmethod
    def _open(self) -> Lake:
        """Make the lake of the settings, which connects with its first request."""

    def check(self) -> None:
        """Raise if the lake cannot be read and written.  Leaves nothing behind."""
        if self._merges and self._settings.plain:
            raise BadInput("plain = true is for keep = 'changes': a state has the documents alone")
        self._lake.check()

    def leave_mark(self, who: str, mark: str) -> None:
        """Write the mark into an object below the path."""
        self._lake.store.remove(_shared(who))
        self._lake.store.put(_shared(who), [mark.encode()])

    def sees_mark(self, who: str, mark: str) -> bool:
        """Whether the path, as this process sees it, has the mark."""
        return self._lake.store.read(_shared(who), 0, len(mark.encode())) == mark.encode()

    # -- which run
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """The epoch, and the offsets of the last batch that was finished; None before the first."""
        return self._ledger(pipeline, writer).read().fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`, and from then on no earlier run can finish a batch.  Also carries out the pending work."""
        ledger = self._ledger(who.pipeline, who.writer)
        while True:
            state = ledger.read()
            if state.offsets is not None and state.keep != self._settings.keep:
                raise NotReady(
                    f"the writer {who.writer!r} has kept {state.keep} so far: a {self._settings.keep} would lack that; "
                    "give it another name and path, and it is filled from the start"
                )
            claimed = state.fence.claim(who)
            if claimed is None or ledger.swap(state.changed(claimed)):
                self._carry_out(ledger.read(), ledger, who, missed=True)
                self._tidy()
                return state.fence.restored()

    def lost(self, who: Who) -> list[str]:
        """The tables that another program has dropped, made again, emptied, or restored to an earlier version."""
        tables = self._ledger(who.pipeline, who.writer).read().tables
        return [f"the table {self._lake.place(name)}" for name, one in tables.items() if self._is_lost(name, one)]

    def _is_lost(self, namespace: str, one: WrittenTable) -> bool:
        table = self._lake.find(namespace)
        return table is None or table.id != one.id or table.version < one.version or (one.filled and table.is_empty())

    def forget(self, who: Who) -> None:
        """Forget which tables this writer has written to, and the pending work."""
        self._swap(self._ledger(who.pipeline, who.writer), lambda state: state.changed(tables={}, pending={}))

    def _ledger(self, pipeline: str, writer: str) -> Ledger:
        if (pipeline, writer) not in self._ledgers:
            self._ledgers[pipeline, writer] = self._lake.ledger(pipeline, writer)
        return self._ledgers[pipeline, writer]

    def _swap(self, ledger: Ledger, change: Callable[[State], State]) -> State:
        """Replace the ledger's state by `change` of it, again if another process was faster.  `change` may raise."""
        while True:
            now = change(ledger.read())
            if ledger.swap(now):
                return now

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Write a task's share into an object in the lake's staging folder."""
        return staging.stage(self._lake.store, rows, state=self._merges, plain=self._settings.plain)

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove the staged objects."""
        staging.discard(self._lake.store, [unit for share in _shares(staged) for unit in share.units])

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Convert these rows to the columns of their tables, where the tables exist, and write none."""
        for batch, _ in staging.formed_rows(rows, state=self._merges, plain=self._settings.plain):
            namespace = batch.schema.metadata[b"namespace"].decode()
            columns = columns_of(batch) if self._merges else batch
            if (table := self._lake.find(namespace)) is not None:
                grown = growth(table.place, table.schema, columns.schema)
                conformed(columns, grown.schema, namespace, keys_of(batch))

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Commit the batch and its offsets to the ledger, then commit its rows to the tables."""
        ledger = self._ledger(who.pipeline, who.writer)
        state = ledger.read()
        if not state.fence.is_repeat(who, offsets):
            self._carry_out(state, ledger, who)  # an earlier attempt may have stopped after its commit to the ledger
            prepared = self._prepared(_shares(staged), state, who)
            state = self._decided(ledger, prepared, state.number, who, offsets)
            self._carry_out(state, ledger, who, prepared)
        else:
            self._carry_out(state, ledger, who)
            self.discard(staged)

    def _decided(
        self, ledger: Ledger, prepared: Mapping[str, Prepared], number: int, who: Who, offsets: Mapping[str, Any]
    ) -> State:
        def change(state: State) -> State:
            if state.fence.is_repeat(who, offsets) or state.number != number:
                raise Fenced(f"another run of the writer {who.writer!r} has written meanwhile; this one must stop")
            tables = {name: _written(one, state.tables.get(name)) for name, one in prepared.items()}
            pending = {name: one.work for name, one in prepared.items()}
            return state.changed(
                state.fence.finish(who, offsets),
                number=number + 1,
                keep=self._settings.keep,
                pending=pending,
                tables={**state.tables, **tables},
            )

        return self._swap(ledger, change)

    def _prepared(self, shares: Sequence[Share], state: State, who: Who) -> dict[str, Prepared]:
        """Make or grow the tables of a batch, and raise whatever would keep one of its rows from its table."""
        left, out = KEPT_BYTES, {}
        owners = {one.id: name for name, one in state.tables.items()}
        for namespace in dict.fromkeys(unit.namespace for share in shares for unit in share.units):
            some = [unit for share in shares for unit in share.units if unit.namespace == namespace]
            schemas = list(dict.fromkeys(one for share in shares for one in share.schemas.get(namespace, ())))
            table = self._target(namespace, schemas, state.tables.get(namespace), who)
            if (other := owners.setdefault(table.id, namespace)) != namespace:
                raise missing_targets.shared(namespace, other, table.place)
            out[namespace] = prepared = self._checked(table, tuple(some), left)
            left -= sum(unit.length for unit in some) if prepared.batches is not None else 0
        return out

    def _checked(self, table: LakeTable, units: tuple[Unit, ...], room: int) -> Prepared:
        """Check that all rows fit into their table, count the steps, and keep the rows if they take up to `room`."""
        prepared, steps = Prepared(table, Work(units)), 0
        kept: list[Any] | None = [] if sum(unit.length for unit in units) <= room else None
        for batch in self._batches(prepared):
            steps += 1
            if kept is not None:
                kept.append(batch)
        return Prepared(table, Work(units, steps if self._merges else min(steps, 1)), kept)

    def _target(self, namespace: str, schemas: Sequence[pa.Schema], before: WrittenTable | None, who: Who) -> LakeTable:
        """The table of a namespace, with a column for each staged field.  Raises if a table written before is gone."""
        table = self._lake.find(namespace)
        if before is not None and (table is None or table.id != before.id):
            raise missing_targets.gone(who, namespace, self._lake.place(namespace), "table")
        schemas = in_order(schemas)
        table = table or self._lake.create(namespace, first_columns(schemas))
        at = table.version if before is None else before.version
        for schema in schemas:
            self._grow(table, schema)
        table.make_durable(at)
        return table

    def _grow(self, table: LakeTable, schema: pa.Schema) -> None:
        def grown() -> None:
            more = growth(table.place, table.schema, schema)
            if more.changes and not self._settings.alter:
                raise NotReady(
                    f"{table.place} lacks the columns, or wider types of them: "
                    f"{', '.join((*more.added, *more.widened))}; set alter = true, and it gets them"
                )
            if more.changes:
                table.grow(more)

        self._insist(table, grown)

    def _rows(self, units: Sequence[Unit]) -> Iterator[pa.RecordBatch]:
        return staging.unit_rows(self._lake.store, units)

    def _batches(self, prepared: Prepared) -> Iterator[Any]:
        """The rows for one table: for a merge one batch for each step, for an append all batches of its one step."""
        if prepared.batches is not None:
            yield from prepared.batches
            return
        schema, units = prepared.table.schema, prepared.work.units
        namespace = units[0].namespace if units else ""
        if not self._merges:
            for batch in self._rows(units):
                if batch.num_rows:
                    keys = [key for key in keys_of(batch) if key in batch.schema.names]
                    yield completed(conformed(batch, schema, namespace, keys), schema)
            return
        for one in folded_batches(self._rows(units), MERGE_BYTES):
            if one.folded.rows:
                columns = conformed(one.folded.columns, schema, namespace, one.keys)
                yield Merged(one.keys, columns, one.folded.ops, one.folded.unset, one.open)

    # -- from the ledger into the tables
    def _carry_out(
        self,
        state: State,
        ledger: Ledger,
        who: Who,
        prepared: Mapping[str, Prepared] | None = None,
        *,
        missed: bool = False,
    ) -> None:
        """Carry out the pending work, each step once.  With `missed`, a missing table raises nothing (see `lost`)."""
        if state.mark == self._done:
            return
        for namespace, work in state.pending.items():
            one = (prepared or {}).get(namespace)
            table = one.table if one is not None else self._lake.find(namespace)
            before = state.tables.get(namespace)
            if table is None or before is None or table.id != before.id:
                if missed:
                    continue
                raise missing_targets.gone(who, namespace, self._lake.place(namespace), "table")
            brought = self._bring(table, one or Prepared(table, work), state, ledger, who)
            table.make_durable(before.version)  # also what a run that died had committed, and had not synced
            if brought:
                self._maintain(table, before.version)
        staging.discard(self._lake.store, [unit for work in state.pending.values() for unit in work.units])
        self._done = state.mark

    def _bring(self, table: LakeTable, prepared: Prepared, state: State, ledger: Ledger, who: Who) -> bool:
        """Commit the steps that a table does not have yet.  Returns whether there were any."""
        app = f"tailrace/{who.pipeline}/{who.writer}/{ledger.id}"
        if not prepared.work.steps:
            return False
        first, last = state.number * STEPS_PER_BATCH + 1, state.number * STEPS_PER_BATCH + prepared.work.steps
        if table.step(app) >= last:
            return False
        details = {"pipeline": who.pipeline, "writer": who.writer, "epoch": state.epoch, "offsets": state.offsets}

        def mark(step: int) -> Mark:
            return Mark(app, step, {**details, "batch": state.number})

        if prepared.work.command:
            self._once(table, mark(first), lambda: self._command(table, prepared.work.command, mark(first)))
        elif self._merges:
            for step, batch in enumerate(self._batches(prepared), first):
                self._once(table, mark(step), partial(table.merge, batch, mark(step)))
        else:
            self._once(table, mark(first), lambda: table.append(self._batches(prepared), table.schema, mark(first)))
        return True

    def _command(self, table: LakeTable, command: str, mark: Mark) -> None:
        if self._merges:
            table.empty(mark)
        else:
            table.append(iter([staging.command_row(table.schema, command)]), table.schema, mark)

    def _once(self, table: LakeTable, mark: Mark, commit: Callable[[], None]) -> None:
        self._insist(table, lambda: None if table.step(mark.app) >= mark.step else commit())

    def _insist(self, table: LakeTable, commit: Callable[[], None]) -> None:
        """Call `commit`, and again when another program has committed in between; `Unavailable` after `ATTEMPTS`."""
        for attempt in range(ATTEMPTS):
            try:
                return commit()
            except Raced as error:
                raced = error
                time.sleep(random.uniform(0, min(2.0, 0.01 * 2**attempt)))
                table.refresh()
        raise Unavailable(
            f"{table.place}: another program has committed to it in between {ATTEMPTS} times ({raced}); what is "
            "pending is tried again"
        )

    def _maintain(self, table: LakeTable, before: int) -> None:
        at = table.version
        try:
            table.maintain(before)
        except (TailraceError, Raced, OSError) as error:
            _log.warning("%s: its small files are put together later: %s", table.place, error)
        table.make_durable(at)

    def _tidy(self) -> None:
        """Remove what was staged long ago, except the pending work of all writers, which share the folder."""
        if self._tidied and time.monotonic() - self._tidied <= TIDY_SECONDS:
            return
        self._tidied = time.monotonic()
        try:
            pending = [work for one in self._lake.ledgers() for work in one.read().pending.values()]
        except TailraceError as error:
            _log.warning("old rows stay staged, because the ledger of a writer cannot be read: %s", error)
        else:
            staging.tidy(self._lake.store, [unit.object for work in pending for unit in work.units])

    # -- commands
    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Truncate a table, or log the truncate.  Goes through the ledger as a batch does: no old run can do it
        late."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: a lake table has no command {command.name!r}; there is: truncate")
        ledger = self._ledger(who.pipeline, who.writer)
        state = ledger.read()
        state.fence.admit(who)
        self._carry_out(state, ledger, who)
        table = self._lake.find(namespace)
        if table is None or (not self._merges and self._settings.plain):
            return
        before = state.tables.get(namespace)
        table.make_durable(table.version if before is None else before.version)

        def change(state: State) -> State:
            state.fence.admit(who)
            return state.changed(
                number=state.number + 1,
                pending={namespace: Work(command=command.name)},
                tables={**state.tables, namespace: WrittenTable(table.id, table.version, not self._merges)},
            )

        self._carry_out(self._swap(ledger, change), ledger, who)

    def close(self) -> None:
        """Close the connections."""
        if "_lake" in self.__dict__:
            self._lake.close()


def _shared(who: str) -> str:
    return f"{OWN}/{ledger_of(who, 'shared')}"


def _shares(staged: Sequence[Staged]) -> list[Share]:
    return [share.detail for share in staged if share.detail is not None]


def _written(prepared: Prepared, before: WrittenTable | None) -> WrittenTable:
    upserts = sum(unit.upserts for unit in prepared.work.units)
    deletes = sum(unit.deletes for unit in prepared.work.units)
    filled = not deletes and (upserts > 0 or (before is not None and before.filled))
    return WrittenTable(prepared.table.id, prepared.table.version, filled)
