"""The reader, against real servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import BadSetting, NotReady
from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.documents_table import DocumentsTable
from tests.adaptors.postgres.conftest import FAST, fresh
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.servers import postgres as servers

pytestmark = pytest.mark.server


class Documents(DocumentsTable):
    """The contract's documents, which the test changes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "public.documents")
        self.place = place

    def add(self, documents: Sequence[Document]) -> None:
        with self.place.connection.transaction():
            self.place.connection.cursor().executemany("INSERT INTO documents VALUES (%(id)s, %(text)s)", documents)

    def change(self, documents: Sequence[Document]) -> None:
        with self.place.connection.transaction():
            sql = "UPDATE documents SET text = %(text)s WHERE id = %(id)s"
            self.place.connection.cursor().executemany(sql, documents)

    def remove(self, ids: Sequence[int]) -> None:
        self.place.run("DELETE FROM documents WHERE id = ANY (%s)", list(ids))

    def truncate(self) -> None:
        self.place.run("TRUNCATE documents")


class TestContract(ReaderContract):
    @pytest.fixture
    def source(self, source: Place) -> Documents:
        return Documents(source)


class TestWithoutFollowing:
    """follow = false: a server that keeps no logical log, and nothing that would mend a copy."""

    @pytest.fixture
    def plain(self) -> Iterator[Place]:
        settings = {**FAST, "wal_level": "replica", "max_replication_slots": "0", "max_wal_senders": "0"}
        with started("PostgreSQL 18", lambda: servers.postgres(settings=settings)) as server:
            yield from fresh(server, "plain")

    def test_needs_no_logical_log(self, plain: Place) -> None:
        plain.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)")
        with pytest.raises(NotReady, match="wal_level"):
            plain.reader().check()
        reader = plain.reader(follow=False)
        reader.check()
        reader.check_namespaces(["public.t"])
        assert not reader.follows
        assert reader.kept() is None
        assert reader.begin(["public.t"]) is None
        (piece,) = reader.pieces("public.t", 10)
        assert sorted(int(m.id) for b in reader.copy(piece) for m in messages_of(b)) == list(range(1, 1001))
        with pytest.raises(BadSetting, match="another name"):
            plain.reader().follow(None, ["public.t"])

    def test_a_table_is_read_in_one_snapshot(self, source18: Place) -> None:
        """A row that moves from a part that is yet to be read to one that was is there, and once."""
        source18.run(
            """CREATE TABLE t (id int, part int) PARTITION BY LIST (part);
               CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2);
               INSERT INTO t SELECT n, 1 + n % 2 FROM generate_series(1, 1000) n"""
        )
        reader = source18.reader(follow=False)
        (piece,) = reader.pieces("public.t", 10)
        rows = reader.copy(piece)
        found = list(messages_of(next(rows)))
        source18.run("UPDATE t SET part = 3 - part")
        found += [m for batch in rows for m in messages_of(batch)]
        assert sorted(m.data["id"] for m in found) == list(range(1, 1001))
