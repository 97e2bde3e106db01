"""The reader, against real servers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.documents_table import DocumentsTable
from tests.adaptors.mysql.place import Place

pytestmark = pytest.mark.server


class Documents(DocumentsTable):
    """The contract's documents, which the test changes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, f"{place.name}.documents")
        self.place = place

    def add(self, documents: Sequence[Document]) -> None:
        self.place.many("INSERT INTO documents VALUES (%(id)s, %(text)s)", list(documents))

    def change(self, documents: Sequence[Document]) -> None:
        self.place.many("UPDATE documents SET text = %(text)s WHERE id = %(id)s", list(documents))

    def truncate(self) -> None:
        self.place.run("TRUNCATE documents")

    def remove(self, ids: Sequence[int]) -> None:
        self.place.many("DELETE FROM documents WHERE id = %s", [[n] for n in ids])


class TestContract(ReaderContract):
    @pytest.fixture
    def source(self, source: Place) -> Documents:
        return Documents(source)
