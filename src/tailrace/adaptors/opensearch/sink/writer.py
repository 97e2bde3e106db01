"""The writer: keeps indexes equal to the source, by bulk requests with external versions.

Each attempt to finish a batch takes the writer's next turn: a number that only rises, which the cluster stores and only
the newest run can take.  The turn gives the version of everything that the attempt writes.  (The offset in the commit
log cannot be the version: when the log gets more partitions a key may go on in a new one at offset 0, and the log of a
pipeline that is made again begins at 0, too.)  If a document has a higher version, the writer takes a turn above it and
writes again, so that it always replaces a document that another program has written.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import DROP, TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.opensearch.cluster import Cluster, path
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink.bulk import MAX_TURN, TURN_BITS, Bulk, Operation, Overtaken, version_of
from tailrace.adaptors.opensearch.sink.operations import Unit, units
from tailrace.adaptors.opensearch.sink.state import Kept, State, Written, open_state
from tailrace.adaptors.opensearch.sink.target_indexes import TargetIndexes
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.adaptors.sinks.folding import counted
from tailrace.errors import BadInput, Conflict, Fenced, NotReady, NotThere, Rejected

MAX_STEPS = 1 << TURN_BITS
EMPTIED_AT_ONCE = 100_000
"""How many documents one request of a truncate deletes: it must be answered in time."""


class SearchWriter(Writer):
    """Writes the indexes of one cluster."""

    guarantee: ClassVar[Guarantee] = "idempotent by id"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE, DROP})

    def __init__(self, settings: SearchSink) -> None:
        self._settings = settings
        self._written: dict[str, Written] | None = None
        """The state's indexes that this writer has written to; None while they must be read first."""
        self._opened = False

    def __repr__(self) -> str:
        return f"SearchWriter({self._settings!r})"

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    @cached_property
    def _places(self) -> TargetIndexes:
        return TargetIndexes(self._cluster, self._settings)

    @cached_property
    def _bulk(self) -> Bulk:
        return Bulk(self._cluster, self._settings)

    def _state(self, who: Who | tuple[str, str]) -> State:
        if not self._opened:
            open_state(self._cluster, self._settings.state)
            self._opened = True
        return State(self._cluster, self._settings.state, who[0], who[1])

    def check(self) -> None:
        """Connect, check the version, the index names and the ingest pipeline, and make the state's index if it is
        missing."""
        self._cluster.check_version()
        self._places.name("namespace")
        if self._settings.ingest:
            name = self._settings.ingest
            doing = f"looking for the ingest pipeline {name}"
            try:
                self._cluster.ask("GET", f"/_ingest/pipeline/{path(name)}", doing=doing)
            except NotThere as error:
                raise NotReady(f"{error}; make it, or leave ingest = … out") from None
        self._state(("", ""))

    # -- offsets
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """The stored epoch, and the offsets of the last batch that was finished; None before the first."""
        return self._state((pipeline, writer)).read().fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`, and from then on no earlier epoch can finish a batch."""
        self._written = None
        state = self._state(who)
        while True:
            kept = state.read()
            claimed = kept.fence.claim(who)
            if claimed is None:
                return kept.fence.restored()
            with suppress(Conflict):  # two runs begin at once: after reading again, the older one gets `Fenced`
                state.store(kept, claimed, kept.turn, secrets.token_hex(8))
                return kept.fence.restored()

    def lost(self, who: Who) -> list[str]:
        """The indexes of this writer that another program has dropped, made again or emptied."""
        written = self._state(who).indexes().values()
        return [f"the index {one.name}" for one in written if self._places.is_lost(one)]

    def forget(self, who: Who) -> None:
        """Forget which indexes this writer has written to."""
        self._written = None
        self._state(who).forget()

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Make the operations of a share; the task's result carries them to the driver."""
        counts: dict[str, int] = {}
        made = list(units(counted(rows, counts), self._settings))
        return Staged(sum(counts.values()), made, counts)

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Make the operations of these rows, which raises what cannot be written, and carry none out."""
        for _ in units(rows, self._settings):
            pass

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Write the staged operations, and then store the offsets.  A call with stored offsets changes nothing."""
        state = self._state(who)
        kept = state.read()
        if kept.fence.is_repeat(who, offsets):
            return
        made: list[Unit] = [unit for share in staged for unit in share.detail or ()]
        known = self._known(state)
        now = self._places.prepare(made, who, known)
        self._written = None
        # Until the offsets are stored, an empty index may only mean that the batch was not written yet.
        unsure = {name: one._replace(filled=False) for name, one in now.items() if known.get(name) != one}
        state.keep({name: one for name, one in unsure.items() if known.get(name) != one})
        kept = self._apply(state, kept, made, who)
        self._places.check_there(now, {unit.namespace for unit in made}, who)
        _stored(state, kept, kept.fence.finish(who, offsets), kept.turn, who)
        state.keep({name: one for name, one in now.items() if one.filled and known.get(name) != one})
        self._written = now

    def _known(self, state: State) -> dict[str, Written]:
        if self._written is None:
            self._written = state.indexes()
        return self._written

    def _apply(self, state: State, kept: Kept, made: Sequence[Unit], who: Who) -> Kept:
        """Write all units at a new turn, in steps: a change must read the document with all earlier operations."""
        kept = self._turn(state, kept, who, kept.turn + 1)
        step = 0
        for some in _steps(made):
            if step == MAX_STEPS:
                kept, step = self._turn(state, kept, who, kept.turn + 1), 0
            changes = some[0].changes > 0
            operations = self._whole(some[0]) if changes else _operations(some)
            kept = self._write(state, kept, step, operations, who)
            step += 1
        return kept

    def _whole(self, unit: Unit) -> Iterator[Operation]:
        """The operations of a unit with changes, each merged into the document that the index has now."""
        yield from _operations([unit])
        changed = [(id, routing, what) for id, routing, what in unit.operations() if isinstance(what, list)]
        yield from self._bulk.whole(unit, changed)

    def _write(self, state: State, kept: Kept, step: int, operations: Iterator[Operation], who: Who) -> Kept:
        """Write operations.  Take a higher turn for those whose documents have a higher version, and write these again.
        Returns the state with the last turn taken."""

        def admitted() -> None:
            state.read().fence.admit(who)

        while True:
            try:
                self._bulk.write(operations, version_of(kept.turn, step), admitted)
                return kept
            except Overtaken as over:
                if over.turn >= MAX_TURN:
                    one = over.left[0]
                    raise Rejected(
                        f"{one.unit.namespace}: {one.id!r} has a version in {one.unit.index} that is too high to be "
                        "followed by another; delete the document there, and it is written",
                        namespace=one.unit.namespace,
                        id=one.id,
                    ) from None
                kept = self._turn(state, kept, who, max(over.turn, kept.turn) + 1)
                operations = iter(over.left)

    def _turn(self, state: State, kept: Kept, who: Who, turn: int) -> Kept:
        """Take a turn: store it for this run.  `Fenced` if a newer run has begun."""
        kept.fence.admit(who)
        fence = kept.fence if kept.fence.epoch == who.epoch else Fence(who.epoch, kept.fence.offsets, claimed=True)
        return _stored(state, kept, fence, turn, who)

    # -- commands
    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Delete all documents of the namespace's index for a truncate, and the index itself for a drop."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: OpenSearch has no command {command.name!r}; there are: truncate, drop")
        state = self._state(who)
        state.read().fence.admit(who)
        found, before = self._places.found(namespace), self._known(state).get(namespace)
        self._written = None
        if before is not None:
            state.keep({namespace: None if command.name == DROP else before._replace(filled=False)})
        if found is None:
            return
        if command.name == DROP:
            self._cluster.ask("DELETE", f"/{path(found.name)}", doing=f"dropping {found.name}", index=found.name)
        else:
            self._places.check(found)
            self._empty(found.name)

    def _empty(self, index: str) -> None:
        every: dict[str, Any] = {"query": {"match_all": {}}}
        how: dict[str, Any] = {
            "conflicts": "proceed",
            "refresh": "true",
            "wait_for_completion": "true",
            "max_docs": EMPTIED_AT_ONCE,
        }
        while not self._cluster.is_empty(index):
            doing = f"emptying {index}"
            self._cluster.ask("POST", f"/{path(index)}/_delete_by_query", every, doing=doing, index=index, **how)

    def close(self) -> None:
        """Close the connections."""
        if "_cluster" in self.__dict__:
            self._cluster.close()


def _stored(state: State, kept: Kept, fence: Fence, turn: int, who: Who) -> Kept:
    """Store the state; `Fenced` if another process has changed it since it was read."""
    try:
        return state.store(kept, fence, turn, secrets.token_hex(8))
    except Conflict:
        state.read().fence.admit(who)
        raise Fenced(
            f"another process writes as the writer {who.writer!r} of this very run; this one must stop"
        ) from None


def _steps(made: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Group units into steps: those that can be written at the same time, and each one with changes alone."""
    held: list[Unit] = []
    for unit in made:
        if unit.changes:
            if held:
                yield held
            yield [unit]
            held = []
        elif unit.data:
            held.append(unit)
    if held:
        yield held


def _operations(step: Sequence[Unit]) -> Iterator[Operation]:
    """The puts and deletes of a step; if several units name a document, only the last unit's operation."""
    last: dict[tuple[str, str], int] = {}
    many = Counter(unit.namespace for unit in step)
    for n, unit in enumerate(step):
        if many[unit.namespace] > 1:
            last.update({(unit.namespace, id): n for id, _, _ in unit.operations()})
    for n, unit in enumerate(step):
        for id, routing, document in unit.operations():
            if not isinstance(document, list) and last.get((unit.namespace, id), n) == n:
                yield Operation(unit, id, routing, document)
