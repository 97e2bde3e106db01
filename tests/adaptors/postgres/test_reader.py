"""The reader, against real servers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


class Documents:
    """The contract's documents, in a table."""

    namespace = "public.documents"

    def __init__(self, place: Place) -> None:
        self._place = place
        place.run("CREATE TABLE documents (id bigint PRIMARY KEY, text text)")

    def reader(self):
        return self._place.reader()

    def add(self, documents: Sequence[Document]) -> None:
        with self._place.connection.transaction():
            self._place.connection.cursor().executemany("INSERT INTO documents VALUES (%(id)s, %(text)s)", documents)

    def change(self, documents: Sequence[Document]) -> None:
        with self._place.connection.transaction():
            sql = "UPDATE documents SET text = %(text)s WHERE id = %(id)s"
            self._place.connection.cursor().executemany(sql, documents)

    def remove(self, ids: Sequence[int]) -> None:
        self._place.run("DELETE FROM documents WHERE id = ANY (%s)", list(ids))


class TestContract(ReaderContract):
    @pytest.fixture
    def source(self, source: Place) -> Documents:
        return Documents(source)
