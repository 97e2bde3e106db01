"""The contract's own tests with a source of several logs and no copy; and what a reader has by default."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Changes, Namespace, Piece, Reader
from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput
from tailrace.log.record import Mode, Op
from tailrace.testing import ReaderContract
from tailrace.testing.readercontract import Document, FollowedReader

NAMES = ("a", "b", "c")


class Logs:
    """Three logs of documents, each id in one of them; one may be divided."""

    namespace = "documents"

    def __init__(self) -> None:
        self.logs: dict[str, list[pa.RecordBatch | list[str]]] = {name: [] for name in NAMES}

    def reader(self) -> LogsReader:
        return LogsReader(self)

    def add(self, documents: Sequence[Document]) -> None:
        self._put(Op.INSERT, documents)

    def change(self, documents: Sequence[Document]) -> None:
        self._put(Op.UPDATE, documents)

    def remove(self, ids: Sequence[int]) -> None:
        self._put(Op.DELETE, [{"id": id, "text": None} for id in ids])

    def _put(self, op: Op, documents: Sequence[Document]) -> None:
        for document in documents:
            columns = pa.RecordBatch.from_pylist([document])
            rows = make_rows(self.namespace, columns, ["id"], op=op, mode=Mode.SYNC)
            self.logs[NAMES[document["id"] % 3]].append(rows)

    def divide(self) -> None:
        """The first log goes on in two others."""
        self.logs["a"].append(["a0", "a1"])
        self.logs |= {"a0": [], "a1": []}


class LogsReader(Reader):
    follows = True

    def __init__(self, logs: Logs) -> None:
        self._logs = logs.logs

    def check(self) -> None:
        pass

    def namespaces(self) -> list[Namespace]:
        return [Namespace("documents")]

    def begin(self, namespaces: Sequence[str]) -> dict[str, Any]:
        return {"splits": {name: len(log) for name, log in self._logs.items()}}

    def splits(self, position: Any) -> Sequence[str]:
        return list(position["splits"])

    def follow(self, position: int | None, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        at, log = position or 0, self._logs[split]
        while True:
            if at < len(log):
                entry, at = log[at], at + 1
                if isinstance(entry, list):
                    yield Changes([], at, opened=entry, closed=True)
                    return
                yield Changes([entry], at)
            else:
                time.sleep(0.001)
                yield Changes([], at)


class TestSeveralLogs(ReaderContract):
    @pytest.fixture
    def source(self) -> Logs:
        return Logs()

    def test_a_log_that_is_divided_is_read_to_its_end_first(self, source: Logs) -> None:
        follower = FollowedReader(source.reader(), source.reader().begin([]), "documents", source.reader)
        source.add([{"id": 0, "text": "first"}])
        source.divide()
        source.logs["a1"].append(make_rows("documents", pa.RecordBatch.from_pylist([{"id": 0, "text": "x"}]), ["id"]))
        follower.until(lambda found: len(found) >= 2)
        assert [m.data["text"] for m in follower.messages] == ["first", "x"]
        assert set(follower.position["splits"]) == {"b", "c", "a0", "a1"}
        follower.close()


class Bare(Reader):
    def check(self) -> None:
        pass


def test_a_source_without_a_copy_has_nothing_to_say_of_it() -> None:
    reader = Bare()
    assert (reader.namespaces(), reader.pieces("t", 10), reader.splits({"a": 1}), reader.copies) == ([], [], (), False)
    with pytest.raises(BadInput, match="a Bare has nothing to copy"):
        next(iter(reader.copy(Piece("t"))))
    with pytest.raises(BadInput, match="a Bare cannot follow; run with --once"):
        reader.follow(None, [])


def test_a_position_named_like_splits_is_no_splits() -> None:
    """A source of topics has their names in its position, and one may be called so."""
    assert Bare().splits({"splits": {"0": 1}}) == ()
    assert command_rows("t", Command("drop")).num_rows == 1
