"""WriterContract: the tests that every writer passes, ours and yours.

Subclass it in a test module and define one fixture, `sink`, which talks to the other system without the writer:

    class TestMyWriter(WriterContract):
        @pytest.fixture
        def sink(self):
            return MySink(…)               # a SinkUnderTest: makes writers, tells which documents are there

Documents are {"id": number, "text": text}; each test gets a new, empty namespace.
"""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import DROP, RENAME, TRUNCATE, Command, Staged, Who, Writer
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.removal import REMOVED
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Conflict
from tailrace.log.record import Mode, Op
from tailrace.testing.readercontract import Document, some

_NESTED = pa.struct([("kept", pa.int64()), ("gone", pa.int64())])


class SinkUnderTest(Protocol):
    """The operations that a test needs of the system behind a writer."""

    namespace: str

    def writer(self) -> Writer:
        """Return a new writer to the sink."""

    def documents(self) -> list[Document]:
        """Return the documents that are there, each {"id", "text"}, in any order."""


class WriterContract:
    """The tests of a writer; subclass it with a fixture `sink`, as the module's docstring shows."""

    upserts = True
    """Whether the sink keeps the newest state of each id; otherwise it keeps every message."""
    deletes = True
    """Whether the sink can delete; otherwise a delete is one more message, or nothing."""

    nests = True
    """Whether the sink holds values with fields of their own, nested or as JSON text; otherwise documents are flat."""

    def test_what_is_finished_is_there(self, sink: SinkUnderTest) -> None:
        _written(sink, some(range(5)))
        assert _sorted(sink) == some(range(5))

    def test_what_is_only_staged_is_not(self, sink: SinkUnderTest) -> None:
        writer = sink.writer()
        staged = writer.stage([_rows(sink, some(range(5)))])
        assert staged.rows == 5
        if writer.guarantee == "exactly once":
            assert sink.documents() == []
        writer.discard([staged])
        writer.close()
        if writer.guarantee == "exactly once":
            assert sink.documents() == []

    def test_shares_of_several_tasks(self, sink: SinkUnderTest) -> None:
        shares = [_staged(sink, [_rows(sink, some(range(n, n + 10)))]) for n in range(0, 40, 10)]
        _finish(sink, shares, {"0": 40})
        assert _sorted(sink) == some(range(40))

    def test_a_share_of_nothing(self, sink: SinkUnderTest) -> None:
        empty = _staged(sink, [])
        assert empty.rows == 0
        _finish(sink, [empty, _staged(sink, [_rows(sink, some([1]))])], {"0": 1})
        _finish(sink, [], {"0": 2})
        assert _sorted(sink) == some([1])

    def test_many_rows(self, sink: SinkUnderTest) -> None:
        batches = [_rows(sink, some(range(n, n + 5000))) for n in range(0, 40_000, 5000)]
        _finish(sink, [_staged(sink, batches)], {"0": 40_000})
        assert _sorted(sink) == some(range(40_000))

    def test_the_last_state_counts(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        _written(sink, some(range(4)))
        rows = [
            _rows(sink, some([1, 2], "second"), Op.UPDATE),
            _rows(sink, some([2], "third"), Op.UPDATE),
            _rows(sink, some([8, 8], "twice"), Op.INSERT),
        ]
        _finish(sink, [_staged(sink, rows)], {"0": 10})
        expected = [*some([0]), *some([1], "second"), *some([2], "third"), *some([3]), *some([8], "twice")]
        assert _sorted(sink) == expected

    def test_deletes(self, sink: SinkUnderTest) -> None:
        if not (self.upserts and self.deletes):
            pytest.skip("this sink deletes nothing")
        _written(sink, some(range(4)))
        rows = [
            _rows(sink, some([1, 2, 9]), Op.DELETE),
            _rows(sink, some([2], "again"), Op.INSERT),
            _rows(sink, some([7]), Op.INSERT),
            _rows(sink, some([7]), Op.DELETE),
        ]
        _finish(sink, [_staged(sink, rows)], {"0": 10})
        assert _sorted(sink) == [*some([0]), *some([2], "again"), *some([3])]

    def test_unset_is_not_null(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        _written(sink, some(range(3)))
        columns = pa.RecordBatch.from_pydict(
            {"id": pa.array([1, 2], pa.int64()), "text": pa.array([None, None], pa.string())}
        )
        bitmap = pa.array([b"\x02", None], pa.binary())
        rows = make_rows(sink.namespace, columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC, unset=bitmap)
        _finish(sink, [_staged(sink, [rows])], {"0": 10})
        assert _sorted(sink) == [*some([0, 1]), {"id": 2, "text": None}]

    def test_a_whole_document_has_no_field_that_it_does_not_have(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        _written(sink, some(range(3)))
        columns = pa.RecordBatch.from_pydict(
            {"id": pa.array([1, 2, 7], pa.int64()), "text": pa.array([None, "set", None], pa.string())}
        )
        unset, whole = pa.array([b"\x02", None, b"\x02"], pa.binary()), pa.array([True, True, True], pa.bool_())
        rows = make_rows(sink.namespace, columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC, unset=unset, whole=whole)
        _finish(sink, [_staged(sink, [rows])], {"0": 10})
        found = {document["id"]: document.get("text") for document in sink.documents()}
        assert found == {0: "text 0", 1: None, 2: "set", 7: None}

    def test_a_nested_field_that_is_removed_is_not_null(self, sink: SinkUnderTest) -> None:
        """Arrow has a null for the field where another row has a value; `removed` tells a removed field from a null."""
        if not (self.upserts and self.nests):
            pytest.skip("this sink keeps every message, or holds flat documents")
        texts = [{"kept": 1, "gone": None}, {"kept": 2, "gone": None}]
        columns = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int64()), "text": pa.array(texts, _NESTED)})
        removed = pa.array([["/text/gone"], None], REMOVED)
        rows = make_rows(sink.namespace, columns, ["id"], op=Op.INSERT, mode=Mode.SYNC, removed=removed)
        _finish(sink, [_staged(sink, [rows])], {"0": 2})
        found = {document["id"]: document["text"] for document in sink.documents()}
        found = {id: json.loads(text) if isinstance(text, str) else text for id, text in found.items()}
        assert found == {1: {"kept": 1}, 2: {"kept": 2, "gone": None}}

    def test_rows_have_their_places(self, sink: SinkUnderTest) -> None:
        """Rows come as in a pipeline: each with its partition and offset in the commit log."""
        rows = [
            placed(_rows(sink, some(range(n, n + 3))), n % 2, pa.array(range(10, 13), pa.int64())) for n in (0, 3, 6)
        ]
        _finish(sink, [_staged(sink, rows)], {"0": 13, "1": 13})
        assert _sorted(sink) == some(range(9))

    def test_finishing_again_changes_nothing(self, sink: SinkUnderTest) -> None:
        writer = sink.writer()
        if writer.guarantee == "at least once":
            pytest.skip("this sink may write a batch again")
        staged = [writer.stage([_rows(sink, some(range(5)))])]
        for _ in range(2):
            writer.finish(staged, Who("pipeline", "writer", 1), {"0": 5})
        assert _sorted(sink) == some(range(5))
        writer.close()

    def test_commands_are_known_by_name(self, sink: SinkUnderTest) -> None:
        with contextlib.closing(sink.writer()) as writer:
            assert writer.commands <= {TRUNCATE, DROP, RENAME}

    def test_truncate(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        self._knows(sink, TRUNCATE)
        _written(sink, some(range(5)))
        writer = sink.writer()
        for _ in range(2):
            writer.command(sink.namespace, Command(TRUNCATE), Who("pipeline", "writer", 1))
        writer.close()
        assert sink.documents() == []

    def test_drop(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        self._knows(sink, DROP)
        _written(sink, some(range(5)))
        with contextlib.closing(sink.writer()) as writer:
            for _ in range(2):
                writer.command(sink.namespace, Command(DROP), Who("pipeline", "writer", 1))
        assert sink.documents() == []
        _written(sink, some([7]), offsets={"0": 2})
        assert _sorted(sink) == some([7])

    def test_rename(self, sink: SinkUnderTest) -> None:
        if not self.upserts:
            pytest.skip("this sink keeps every message")
        self._knows(sink, RENAME)
        other = f"{sink.namespace}_renamed"
        _written(sink, some(range(5)))
        with contextlib.closing(sink.writer()) as writer:
            writer.command(sink.namespace, Command(RENAME, other), Who("pipeline", "writer", 1))
            assert sink.documents() == []
            writer.command(other, Command(RENAME, sink.namespace), Who("pipeline", "writer", 1))
        assert _sorted(sink) == some(range(5))

    def test_a_truncate_of_a_run_that_was_followed_is_refused(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        self._knows(sink, TRUNCATE)
        old, new = sink.writer(), sink.writer()
        old.claim(Who("pipeline", "writer", 1))
        new.claim(Who("pipeline", "writer", 2))
        _written(sink, some(range(5)), epoch=2)
        with pytest.raises(Conflict):
            old.command(sink.namespace, Command(TRUNCATE), Who("pipeline", "writer", 1))
        old.close()
        new.close()
        assert _sorted(sink) == some(range(5))

    # -- offsets in the sink
    def test_offsets_are_restored(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        writer = sink.writer()
        assert writer.restore("pipeline", "writer") is None
        _written(sink, some(range(5)), offsets={"0": {"low": 5, "ahead": {"a": 7}}})
        assert writer.restore("pipeline", "writer") == {"epoch": 1, "offsets": {"0": {"low": 5, "ahead": {"a": 7}}}}
        assert writer.restore("pipeline", "other") is None
        writer.close()

    def test_a_lower_epoch_is_refused(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        old = _staged(sink, [_rows(sink, some([1], "old"))])
        _written(sink, some([1], "new"), epoch=2, offsets={"0": 5})
        with pytest.raises(Conflict):
            _finish(sink, [old], {"0": 9}, epoch=1)
        assert _sorted(sink) == some([1], "new")

    def test_a_lower_offset_of_the_same_epoch_is_refused(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        old = _staged(sink, [_rows(sink, some([1], "old"))])
        _written(sink, some([1], "new"), offsets={"0": 9, "1": 4})
        with pytest.raises(Conflict):
            _finish(sink, [old], {"0": 5, "1": 4})
        assert _sorted(sink) == some([1], "new")

    def test_a_higher_epoch_may_go_back(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        _written(sink, some([1], "first"), epoch=1, offsets={"0": 9})
        _written(sink, some([1], "replayed"), epoch=2, offsets={"0": 3})
        assert _sorted(sink) == some([1], "replayed")

    def test_a_claim_shuts_out_earlier_epochs(self, sink: SinkUnderTest) -> None:
        self._exactly(sink)
        with contextlib.closing(sink.writer()) as writer:
            assert writer.claim(Who("pipeline", "writer", 1)) is None
            _written(sink, some([1], "first"), epoch=1, offsets={"0": 5})
            late = _staged(sink, [_rows(sink, some([2], "late"))])
            kept = writer.claim(Who("pipeline", "writer", 2))
            assert kept is not None
            assert kept["offsets"] == {"0": 5}
            with pytest.raises(Conflict):
                _finish(sink, [late], {"0": 9}, epoch=1)
            with pytest.raises(Conflict):
                writer.claim(Who("pipeline", "writer", 1))
        _written(sink, some([3], "replayed"), epoch=2, offsets={"0": 3})
        assert _sorted(sink) == [*some([1], "first"), *some([3], "replayed")]

    def _knows(self, sink: SinkUnderTest, command: str) -> None:
        with contextlib.closing(sink.writer()) as writer:
            if command not in writer.commands:
                pytest.skip(f"this sink has no command {command!r}; a pipeline passes it")

    def _exactly(self, sink: SinkUnderTest) -> None:
        writer = sink.writer()
        writer.close()
        if writer.guarantee != "exactly once":
            pytest.skip("this sink keeps no offsets")


def _rows(sink: SinkUnderTest, documents: Sequence[Document], op: Op = Op.INSERT) -> pa.RecordBatch:
    columns = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([d["id"] for d in documents], pa.int64()),
            "text": pa.array([d["text"] for d in documents], pa.string()),
        }
    )
    return make_rows(sink.namespace, columns, ["id"], op=op, mode=Mode.SYNC, timestamp=1)


def _staged(sink: SinkUnderTest, rows: Iterable[pa.RecordBatch]) -> Staged:
    """Return what another writer has staged, as in a task, after sending it to the driver."""
    writer = sink.writer()
    staged = writer.stage(rows)
    writer.close()
    sent: Staged = pickle.loads(pickle.dumps(staged))
    return sent


def _finish(sink: SinkUnderTest, staged: Sequence[Staged], offsets: dict[str, Any], *, epoch: int = 1) -> None:
    with contextlib.closing(sink.writer()) as writer:
        writer.check()
        writer.finish(staged, Who("pipeline", "writer", epoch), offsets)


def _written(
    sink: SinkUnderTest, documents: Sequence[Document], *, epoch: int = 1, offsets: dict[str, Any] | None = None
) -> None:
    _finish(sink, [_staged(sink, [_rows(sink, documents)])], offsets or {"0": 1}, epoch=epoch)


def _sorted(sink: SinkUnderTest) -> list[Document]:
    return sorted(sink.documents(), key=lambda document: int(document["id"]))
