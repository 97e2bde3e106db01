"""Every type of every source in every sink, as docs/guide/types.md has it.

`TAILRACE_WRITE_TYPES=1 pytest -m soak tests/adaptors/test_type_table.py` writes the page; what it then says must be
right."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.storage.keys import KeySchema
from tests.adaptors import type_table as table
from tests.adaptors.dynamodb import values as of_dynamodb
from tests.adaptors.dynamodb.place import Place as Items
from tests.adaptors.mongodb import values as of_mongodb
from tests.adaptors.mongodb.conftest import fresh as fresh_documents
from tests.adaptors.mongodb.place import Place as Documents
from tests.adaptors.mysql.conftest import fresh as fresh_rows
from tests.adaptors.mysql.place import Place as Rows
from tests.adaptors.mysql.source.test_types import BOTH, JSON
from tests.adaptors.postgres import values as of_postgres
from tests.adaptors.postgres.place import Place as Tables
from tests.adaptors.type_table import Sample
from tests.conftest import started
from tests.servers import mariadb as mariadbs
from tests.servers import mongodb as mongodbs
from tests.servers import mysql as mysqls
from tests.servers import postgres as postgreses
from tests.servers.mysql import FAST
from tests.servers.process import Server

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]
EXACT = ("PostgreSQL", "MongoDB", "DynamoDB")
"""What these have of their own kind is compared text by text and byte by byte in their own tests."""
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "types.md"


class Servers:
    """One of each, and what is started with them."""

    def __init__(self, stack: contextlib.ExitStack, dynoxide: Server) -> None:
        self._stack = stack
        self.mysql = stack.enter_context(started("MySQL 8.0", lambda: mysqls.mysql(settings=FAST)))
        self.mariadb = stack.enter_context(started("MariaDB", lambda: mariadbs.mariadb(settings=FAST)))
        self.mongo = stack.enter_context(started("MongoDB", mongodbs.mongod))
        self.postgres = stack.enter_context(
            started("PostgreSQL", lambda: postgreses.postgres(settings={"fsync": "off"}))
        )
        self.dynoxide = dynoxide

    def rows(self, flavor: str) -> Rows:
        """A new database of MySQL or MariaDB."""
        fresh = contextlib.contextmanager(fresh_rows)
        return self._stack.enter_context(fresh(self.mysql if flavor == "mysql" else self.mariadb, "types"))

    def documents(self) -> Documents:
        """A new database of MongoDB."""
        return self._stack.enter_context(contextlib.contextmanager(fresh_documents)(self.mongo, "types"))

    def tables(self, name: str) -> Tables:
        """A new database of PostgreSQL."""
        with Tables(self.postgres, "postgres") as admin:
            admin.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return self._stack.enter_context(Tables(self.postgres, name))

    def items(self) -> Items:
        """Names of tables of DynamoDB that no other test has."""
        return self._stack.enter_context(Items(self.dynoxide))


@pytest.fixture(scope="module")
def servers(dynoxide: Server) -> Iterator[Servers]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", dynoxide.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", dynoxide.secret)
        patch.setenv("AWS_REGION", dynoxide.region)
        yield Servers(stack, dynoxide)


def from_postgres(servers: Servers) -> list[Sample]:
    place = servers.tables("types_source")
    cases = [(kind, text) for kind, texts in of_postgres.BUILT_IN for text in texts]
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(cases))
    place.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
    place.run(f"INSERT INTO kinds VALUES (1{', %s' * len(cases)})", *[text for _, text in cases])
    with contextlib.closing(place.reader(follow=False)) as reader:
        return table.samples(reader, "public.kinds", cases)


def _from_rows(place: Rows) -> list[Sample]:
    cases = [(kind, sql) for kind, sql, _ in BOTH] + [("json", f"'{_escaped(text)}'") for text in JSON]
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(cases))
    given = [(n, sql) for n, (_, sql) in enumerate(cases) if sql]
    place.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    place.run(
        f"INSERT INTO kinds (id, {', '.join(f'c{n}' for n, _ in given)}) VALUES (1, {', '.join(s for _, s in given)})"
    )
    with contextlib.closing(place.reader(follow=False)) as reader:
        said = [(kind, table.shortened(sql.strip("'"))) for kind, sql in cases]
        return table.samples(reader, f"{place.name}.kinds", said)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")


def from_mysql(servers: Servers) -> list[Sample]:
    return _from_rows(servers.rows("mysql"))


def from_mariadb(servers: Servers) -> list[Sample]:
    return _from_rows(servers.rows("mariadb"))


def from_mongodb(servers: Servers) -> list[Sample]:
    place = servers.documents()
    place["kinds"].insert_one({"_id": 1} | {f"c{n}": value for n, value in enumerate(of_mongodb.VALUES.values())})
    names = [(_kind_of_bson(value), name) for name, value in of_mongodb.VALUES.items()]
    with contextlib.closing(place.reader(shape="columns")) as reader:
        return table.samples(reader, place.namespace("kinds"), names)


def _kind_of_bson(value: object) -> str:
    names = {
        "str": "string",
        "int": "int32",
        "Int64": "int64",
        "float": "double",
        "NoneType": "null",
        "dict": "document",
    }
    name = type(value).__name__
    return names.get(name, name)


def from_dynamodb(servers: Servers) -> list[Sample]:
    place = servers.items()
    kinds = place.table("kinds", KeySchema("id", "N", None))
    place.put(kinds, {"id": 1} | {f"c{n}": value for n, value in enumerate(of_dynamodb.VALUES.values())})
    names = [(type(value).__name__, name) for name, value in of_dynamodb.VALUES.items()]
    with contextlib.closing(place.reader(shape="columns")) as reader:
        return table.samples(reader, kinds, names)


SOURCES: dict[str, Callable[[Servers], list[Sample]]] = {
    "From PostgreSQL": from_postgres,
    "From MySQL": from_mysql,
    "From MariaDB": from_mariadb,
    "From MongoDB": from_mongodb,
    "From DynamoDB": from_dynamodb,
}


@pytest.mark.parametrize("title", SOURCES)
def test_the_page_says_what_happens(servers: Servers, title: str) -> None:
    values = SOURCES[title](servers)
    sinks: dict[str, table.Sink] = {
        "PostgreSQL": table.PostgresSink(servers.tables(f"types_{title[5:].lower()}")),
        "MySQL": table.MySQLSink(servers.rows("mysql")),
        "MariaDB": table.MySQLSink(servers.rows("mariadb")),
        "MongoDB": table.MongoSink(servers.documents()),
        "DynamoDB": table.DynamoSink(servers.items()),
    }
    cells = {}
    for name, sink in sinks.items():
        with table.filled(sink) as fill:
            cells[name] = list(fill(values))
        if title == f"From {name}" and name in EXACT:
            cells[name] = [cell if cell.got == "refused" else cell._replace(same=True) for cell in cells[name]]
    found = table.rendered(title, values, cells)
    if os.environ.get("TAILRACE_WRITE_TYPES"):
        PAGE.write_text(_replaced(PAGE.read_text(), title, found))
    assert _section(PAGE.read_text(), title) == found


def _section(page: str, title: str) -> str:
    match = re.search(rf"^## {title}\n.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return match[0].rstrip("\n") + "\n" if match else ""


def _replaced(page: str, title: str, section: str) -> str:
    old = _section(page, title)
    return page.replace(old, section) if old else f"{page.rstrip()}\n\n{section}"
