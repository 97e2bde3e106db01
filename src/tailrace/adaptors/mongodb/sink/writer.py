"""The writer: keeps collections equal to the source, and stores the offsets in the same transactions.

A small batch is one transaction.  A larger batch is several, of which the last stores the offsets.  All operations are
by id and may be applied again, so if a run crashes between two transactions, the next run repairs the collections by
writing the whole batch again.  A standalone server has no transactions; there the writer sends the same operations
without them, idempotent by id."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa

from tailrace.adaptors.contract import DROP, TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.errors import writing
from tailrace.adaptors.mongodb.settings import MongoSink
from tailrace.adaptors.mongodb.sink import state
from tailrace.adaptors.mongodb.sink.state import WrittenCollection
from tailrace.adaptors.sinks import missing_targets
from tailrace.errors import BadInput, Fenced, NotReady

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from tailrace.adaptors.mongodb.sink.stage import Unit

_log = logging.getLogger("tailrace")
T = TypeVar("T")
MAX_DOCUMENTS_PER_TRANSACTION = 20_000
MAX_BYTES_PER_TRANSACTION = 32 * 1024 * 1024
"""The limits of one transaction: the server aborts one after a minute, and keeps all of it in its cache."""
MAX_DOCUMENTS_PER_REQUEST = 1000
MAX_ID_BYTES_PER_REQUEST = 8 * 1024 * 1024
"""About the most bytes of ids that one request deletes: a request has at most 16 MB, and an id may be long."""
SWEEP_INTERVAL_SECONDS = 600.0
"""Seconds between two runs of `tidy`, which removes staged parts that no run has finished."""


class MongoWriter(Writer):
    """Writes the collections of one deployment."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE, DROP})

    def __init__(self, settings: MongoSink) -> None:
        self._settings = settings
        self._written: dict[str, WrittenCollection] | None = None
        """The collections that this writer has written, as the sink's state lists them; None: not read yet."""
        self._tidied = 0.0

    def __repr__(self) -> str:
        return f"MongoWriter({self._settings!r})"

    @cached_property
    def _deployment(self) -> Deployment:
        return Deployment(self._settings.uri, writing)

    @cached_property
    def _transactional(self) -> bool:
        """Whether the server has transactions: a standalone server has none."""
        return self._deployment.is_replicated()

    @property
    def _state(self) -> Any:
        from pymongo.write_concern import WriteConcern

        return self._deployment.client.get_database(
            self._settings.state, write_concern=WriteConcern("majority" if self._transactional else 1)
        )

    def check(self) -> None:
        """Check the version, the password and the right to write the state; warn if there are no transactions."""
        self._deployment.check_version()
        if not self._transactional:
            _log.warning(
                "MongoDB at %s is a standalone server and has no transactions: batches are written idempotent by _id, "
                "not exactly once; start it with --replSet rs0, and once: mongosh --eval 'rs.initiate()'",
                self._deployment.where,
            )
        with self._deployment.guarded("checking the right to write the state"):
            self._state["offsets"].delete_one({"_id": "nothing has this id"})

    # -- offsets
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Return the epoch and the offsets of the last finished batch."""
        with self._deployment.guarded("reading offsets"):
            return state.read(self._state, pipeline, writer).restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """Do the same as `restore`, and keep earlier epochs from finishing anything."""
        self._written = None

        def claimed(session: ClientSession | None) -> Mapping[str, Any] | None:
            kept = state.lock(self._state, who, session)
            if (now := kept.claim(who)) is not None and not state.store(self._state, who, now, session):
                raise Fenced(f"another run of the writer {who.writer!r} has begun; this one must stop")
            return kept.restored()

        return self._in_transaction("claiming the sink", claimed)

    def lost(self, who: Who) -> list[str]:
        """Return the collections of this writer that another program has dropped or emptied."""
        with self._deployment.guarded("looking for its collections"):
            written = state.collections(self._state, who).values()
            client = self._deployment.client
            gone = [one for one in written if one.filled and client[one.database][one.collection].find_one() is None]
        return [f"the collection {one.shown}" for one in gone]

    def forget(self, who: Who) -> None:
        """Delete the record of the collections that were written, so `lost` misses none of them."""
        self._written = None
        with self._deployment.guarded("forgetting its collections"):
            state.forget_collections(self._state, who)

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage the operations of these rows, inside `Staged` or in a collection of the state."""
        deployment = self._deployment
        from tailrace.adaptors.mongodb.sink.stage import stage

        return stage(deployment, self._settings.state, rows)

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Convert the rows to operations without applying any."""
        self._deployment.check_version()
        from tailrace.adaptors.mongodb.sink import operations

        for namespace, _ in operations.batches(iter(rows), MAX_BYTES_PER_TRANSACTION):
            self._place(namespace)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Apply the staged operations and store the offsets; a batch that is finished already changes nothing."""
        from tailrace.adaptors.mongodb.sink import stage

        with self._deployment.guarded("reading offsets"):
            if state.read(self._state, who.pipeline, who.writer).is_repeat(who, offsets):
                return  # before the staged parts are read, which may be gone
        units = [unit for share in staged for unit in share.detail or ()]
        chunks = self._chunks(units)
        held, further = next(chunks, []), next(chunks, None)
        if further is not None or not self._transactional:
            self._doubt(units, who)
        while further is not None:
            self._some(held, who, offsets)
            held, further = further, next(chunks, None)
        self._last(held, units, who, offsets)
        stage.discard(self._deployment, self._settings.state, units)
        if time.monotonic() - self._tidied > SWEEP_INTERVAL_SECONDS or not self._tidied:
            self._tidied = time.monotonic()
            stage.tidy(self._deployment, self._settings.state)

    def _chunks(self, units: Sequence[Unit]) -> Iterator[list[tuple[str, list[bytes]]]]:
        """Yield all operations in their order, in chunks that fit into one transaction."""
        from tailrace.adaptors.mongodb.sink.stage import operations_of

        chunk: list[tuple[str, list[bytes]]] = []
        count = size = 0
        for unit in units:
            operations = operations_of(self._deployment, self._settings.state, unit)
            while some := list(islice(operations, MAX_DOCUMENTS_PER_REQUEST)):
                chunk.append((unit.namespace, some))
                count, size = count + len(some), size + sum(map(len, some))
                if count >= MAX_DOCUMENTS_PER_TRANSACTION or size >= MAX_BYTES_PER_TRANSACTION:
                    yield chunk
                    chunk, count, size = [], 0, 0
        if chunk:
            yield chunk

    def _doubt(self, units: Sequence[Unit], who: Who) -> None:
        """Record that deletes of this batch may leave collections empty, before a part of it commits.

        Without that, after a crash between two parts, the next run would report such a collection as lost."""
        known, emptied = self._known(who), {unit.namespace for unit in units if unit.deletes}
        doubtful = {name: one._replace(filled=False) for name, one in known.items() if one.filled and name in emptied}
        if not doubtful:
            return

        def done(session: ClientSession | None) -> None:
            state.lock(self._state, who, session).admit(who)
            state.keep_collections(self._state, who, doubtful, session)

        self._written = None
        self._in_transaction("beginning a batch", done)

    def _some(self, chunk: Sequence[tuple[str, list[bytes]]], who: Who, offsets: Mapping[str, Any]) -> None:
        """Apply one part of a batch that is too large for one transaction."""

        def done(session: ClientSession | None) -> None:
            if not state.lock(self._state, who, session).is_repeat(who, offsets):
                self._apply(chunk, session)

        self._in_transaction("writing a part of a batch", done)

    def _last(
        self, chunk: Sequence[tuple[str, list[bytes]]], units: Sequence[Unit], who: Who, offsets: Mapping[str, Any]
    ) -> None:
        """Apply the rest of a batch, and store the offsets and the collections that it was written to."""
        known = self._known(who)
        now = self._after(known, units)
        changed = {name: one for name, one in now.items() if known.get(name) != one}

        def done(session: ClientSession | None) -> None:
            fence = state.lock(self._state, who, session)
            if fence.is_repeat(who, offsets):
                return
            self._apply(chunk, session)
            state.keep_collections(self._state, who, changed, session)
            if not state.store(self._state, who, fence.finish(who, offsets), session):
                raise Fenced(f"another run of the writer {who.writer!r} has begun; this one must stop")

        self._written = None
        self._in_transaction("finishing a batch", done)
        self._written = now

    def _apply(self, chunk: Sequence[tuple[str, list[bytes]]], session: ClientSession | None) -> None:
        from tailrace.adaptors.mongodb.sink.apply import apply

        for namespace, operations in chunk:
            database, name = self._place(namespace)
            apply(self._deployment.client[database][name], namespace, operations, session)

    def _known(self, who: Who) -> dict[str, WrittenCollection]:
        if self._written is None:
            with self._deployment.guarded("reading which collections were written"):
                self._written = state.collections(self._state, who)
        return self._written

    def _after(self, known: Mapping[str, WrittenCollection], units: Sequence[Unit]) -> dict[str, WrittenCollection]:
        """Return the collections that are written once this batch is finished."""
        now = dict(known)
        taken = {(one.database, one.collection): name for name, one in known.items()}
        for unit in units:
            before = now.get(unit.namespace)
            filled = (unit.puts > 0 and not unit.deletes) or (before is not None and before.filled and not unit.deletes)
            made = now[unit.namespace] = WrittenCollection(*self._place(unit.namespace), filled)
            other = taken.setdefault((made.database, made.collection), unit.namespace)
            if other != unit.namespace:
                raise missing_targets.shared(unit.namespace, other, made.shown)
        return now

    def _place(self, namespace: str) -> tuple[str, str]:
        """Return the database and the collection that a namespace is written to."""
        first, dot, rest = namespace.partition(".")
        database = self._settings.database or self._deployment.database or (first if dot else None)
        if database is None:
            raise NotReady(f"{namespace} names no database; say which by database = … of the sink, or in its uri")
        return database, rest if dot else namespace

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove the staged parts of a batch that failed."""
        from tailrace.adaptors.mongodb.sink import stage

        units = [unit for share in staged for unit in share.detail or ()]
        if any(unit.name for unit in units):
            stage.discard(self._deployment, self._settings.state, units)

    # -- commands
    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Delete all documents in transactions, which fail once a newer run has claimed the sink.

        So does DROP, and leaves the empty collection: MongoDB drops and renames collections outside of transactions
        only, so after a stall this run would drop what a newer run has written."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: MongoDB has no command {command.name!r}; there are: truncate, drop")
        database, name = self._place(namespace)
        from tailrace.adaptors.mongodb.extended_json import DECODED

        collection = self._deployment.client[database].get_collection(name, codec_options=DECODED)
        known = self._known(who).get(namespace)
        empty = {namespace: WrittenCollection(database, name, False)} if known is not None else {}

        def emptied(session: ClientSession | None) -> bool:
            state.lock(self._state, who, session).admit(who)
            state.keep_collections(self._state, who, empty, session)
            some = collection.find({}, {"_id": 1}, session=session).limit(MAX_DOCUMENTS_PER_TRANSACTION)
            if ids := _within(some, MAX_ID_BYTES_PER_REQUEST):
                collection.delete_many({"_id": {"$in": ids}}, session=session)
            return not ids

        self._written = None
        while not self._in_transaction(f"emptying {namespace}", emptied):
            pass

    def close(self) -> None:
        """Close the connections."""
        if "_deployment" in self.__dict__:
            self._deployment.close()

    def _in_transaction(self, doing: str, do: Callable[[Any], T]) -> T:
        """Run `do` in a transaction, and again after a conflict with another; on a standalone server run it without."""
        with self._deployment.guarded(doing):
            if not self._transactional:
                return do(None)
            from pymongo.read_concern import ReadConcern
            from pymongo.write_concern import WriteConcern

            with self._deployment.client.start_session() as session:
                return session.with_transaction(
                    do, read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority")
                )


def _within(documents: Iterable[Mapping[str, Any]], most: int) -> list[Any]:
    """Return the ids of the first documents, of about `most` bytes together."""
    import bson

    from tailrace.adaptors.mongodb.extended_json import DECODED

    ids: list[Any] = []
    size = 0
    for one in documents:
        ids.append(one["_id"])
        size += len(bson.encode(one, codec_options=DECODED))
        if size >= most:
            break
    return ids
