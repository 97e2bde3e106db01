"""The reader against a real node: the contract of all readers, and an index that is copied elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.opensearch.source import shard_copy
from tailrace.adaptors.opensearch.source.reader import SearchReader
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import NotReady, NotThere, Unavailable
from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.opensearch.place import WHO, Place

pytestmark = pytest.mark.server


class SearchSourceIndex:
    """An index that a contract test reads."""

    namespace = "documents"

    def __init__(self, place: Place) -> None:
        self._place = place
        place.ask("PUT", f"/{place.index('documents')}", {"settings": {"number_of_replicas": 0}})

    def reader(self) -> SearchReader:
        return self._place.reader(shape="columns")

    def add(self, documents: Sequence[Document]) -> None:
        self._place.put("documents", {str(document["id"]): document for document in documents})


class TestSearchReader(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Any:
        return SearchSourceIndex(place)


DOCUMENTS: dict[str, Any] = {
    "plain": {"n": 1, "text": "a\nb"},
    "é/ ?": {"deep": {"a": [1, 2.5]}, "none": None, "n": 12345678901234567890123456789},
    "empty": {},
    **{str(n): {"filler": "x" * (n % 50)} for n in range(700)},
}
LEFT = {"mappings": {"dynamic": False}, "settings": {"number_of_shards": 3, "number_of_replicas": 0}}


def test_an_index_is_copied_elsewhere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """From several shards, in pages of few documents, the text of each document as it was."""
    place.ask("PUT", f"/{place.index('c')}", LEFT)
    place.put("c", DOCUMENTS)
    with contextlib.closing(place.reader(batch_rows=100)) as reader:
        pieces = reader.pieces("c", 10)
        assert len(pieces) == 3
        batches = [batch for piece in pieces for batch in reader.copy(Piece("c", json.loads(json.dumps(piece.bounds))))]
        assert max(batch.num_rows for batch in batches) <= 100
    with contextlib.closing(place.writer(index=place.index("copy-{namespace}"), mappings="leave")) as sink:
        place.ask("PUT", f"/{place.index('copy-c')}", LEFT)
        sink.finish([sink.stage(batches)], WHO, {"0": 1})
    assert place.documents("copy-c") == place.documents("c") == DOCUMENTS


def test_columns_of_any_shape(place: Place) -> None:
    place.put("c", {"1": {"n": 1}, "2": {"t": "x", "l": [1]}, "3": {"n": 2.5, "o": {"a": 1}}})
    with contextlib.closing(place.reader(shape="columns")) as reader:
        found = {m.id: m.data for piece in reader.pieces("c", 9) for b in reader.copy(piece) for m in messages_of(b)}
    assert found["1"] == {"_id": "1", "n": 1}
    assert found["2"] == {"_id": "2", "t": "x", "l": [1]}
    assert found["3"] == {"_id": "3", "n": 2.5, "o": {"a": 1}}


def test_a_copy_is_of_one_moment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_copy, "FIRST_PAGE", 10)
    place.put("c", {str(n): {"n": n} for n in range(100)})
    with contextlib.closing(place.reader(batch_rows=10)) as reader:
        (piece,) = reader.pieces("c", 1000)
        copying = reader.copy(piece)
        first = next(copying)
        place.put("c", {str(n): {"n": -1} for n in range(200)})
        rest = list(copying)
    texts = [json.loads(m.data["document"])["n"] for batch in (first, *rest) for m in messages_of(batch)]
    assert sorted(texts) == list(range(100))


def test_a_moment_that_is_no_longer_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_copy, "FIRST_PAGE", 10)
    place.put("c", {str(n): {"n": n} for n in range(100)})
    with contextlib.closing(place.reader()) as reader:
        copying = reader.copy(reader.pieces("c", 1000)[0])
        next(copying)
        place.ask("DELETE", "/_search/point_in_time/_all")
        with pytest.raises(Unavailable, match=r"no longer kept.*keep_alive"):
            next(copying)


def test_what_is_not_there(place: Place) -> None:
    place.ask("PUT", f"/{place.index('dark')}", {"mappings": {"_source": {"enabled": False}}})
    place.put("dark", {"1": {"n": 1}})
    place.ask("PUT", f"/{place.index('hidden')}", {"settings": {"index.hidden": True}})
    with contextlib.closing(place.reader()) as reader:
        assert [found.name for found in reader.namespaces()] == ["dark"]
        with pytest.raises(NotThere, match="there is no index"):
            reader.pieces("gone", 10)
        with pytest.raises(NotReady, match="keeps no _source"):
            list(reader.copy(reader.pieces("dark", 10)[0]))
