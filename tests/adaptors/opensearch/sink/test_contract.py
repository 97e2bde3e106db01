"""The contract of all writers, on a real node; what sinks with offsets promise is asked of this one, too."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.opensearch.sink import operations
from tailrace.adaptors.opensearch.sink.writer import SearchWriter
from tailrace.testing.readercontract import Document
from tailrace.testing.writercontract import WriterContract
from tests.adaptors.opensearch.place import Place

pytestmark = pytest.mark.server


class Keeping(SearchWriter):
    """The contract asks about offsets only where they are promised to be in one transaction with the data."""

    guarantee = "exactly once"


class SearchIndex:
    """An index that a contract test writes."""

    namespace = "documents"

    def __init__(self, place: Place, kind: type[SearchWriter]) -> None:
        self._place, self._kind = place, kind

    def writer(self) -> SearchWriter:
        return self._kind(self._place.writer()._settings)

    def documents(self) -> list[Document]:
        if not self._place.ask("GET", "/_cat/indices?format=json&index=" + self._place.index("documents*")):
            return []
        found = self._place.documents("documents")
        assert all(id == str(document["id"]) for id, document in found.items())
        return [{"id": document["id"], "text": document.get("text")} for document in found.values()]


class TestSearchWriter(WriterContract):
    @pytest.fixture
    def sink(self, place: Place) -> Any:
        return SearchIndex(place, SearchWriter)


class TestOffsets(WriterContract):
    """In units of few rows, and with the tests of offsets."""

    @pytest.fixture
    def sink(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(operations, "UNIT_BYTES", 300_000)
        return SearchIndex(place, Keeping)
