"""The writer, against real servers."""

from __future__ import annotations

import pytest

from tailrace.adaptors.postgres.writer import PostgresWriter
from tailrace.testing.readercontract import Document
from tailrace.testing.writercontract import WriterContract
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


class Documents:
    """The contract's documents, in a table."""

    namespace = "public.documents"

    def __init__(self, place: Place) -> None:
        self._place = place
        place.run("CREATE TABLE documents (id bigint PRIMARY KEY, text text)")

    def writer(self) -> PostgresWriter:
        return self._place.writer()

    def documents(self) -> list[Document]:
        return [{"id": id, "text": text} for id, text in self._place.ask("SELECT id, text FROM documents")]


class TestContract(WriterContract):
    @pytest.fixture
    def sink(self, sink: Place) -> Documents:
        return Documents(sink)
