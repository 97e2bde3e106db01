"""The same command again: refused with one line, and once the cause is gone the sink has what the source has."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.adaptors.postgres.source import reader as reading
from tailrace.cli.main import main
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.run import runner as running
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.pipeline.runs import caught_up, going, until
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres
from tests.servers.process import folder

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count()
SECRET = "hunter2-very-secret"
FILE = """
import tailrace

def kept(message):
    {function}
    return message

pipeline = (
    tailrace.pipeline("shop", home="{home}", partitions={partitions})
    .source("postgres", uri="${{SHOP}}", namespace=r"{namespace}", slot="{slot}"{source})
    .branch(r"{branch}").transform(kept).save("postgres", uri="${{WAREHOUSE}}"{sink})
)
"""
TOML = """
name = "shop"
home = "{home}"
partitions = {partitions}
[source]
adaptor = "postgres"
uri = "${{SHOP}}"
namespace = '{namespace}'
slot = "{slot}"
[[branch]]
namespace = '{branch}'
save = {{adaptor = "postgres", uri = "${{WAREHOUSE}}"{sink}}}
"""
GOOD = {
    "function": "pass",
    "partitions": "2",
    "namespace": r"^public\.orders$",
    "source": "",
    "branch": ".*",
    "sink": ", create=True",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as made:
        yield made


class Shop:
    """A source, a sink, a pipeline's file between them, and the command that people type."""

    def __init__(self, folder: Path, source: Place, sink: Place, printed: Callable[[], tuple[str, str]]) -> None:
        self.folder, self.source, self.sink, self._printed = folder, source, sink, printed
        self._next = 1000
        self.write()

    def write(self, text: str = FILE, **parts: str) -> None:
        """The pipeline's file, with some parts of it otherwise."""
        given = {"home": self.folder / "home", "slot": self.source.name, **GOOD, **parts}
        for suffix in ("py", "toml"):
            (self.folder / f"shop.{suffix}").unlink(missing_ok=True)
        self._file = self.folder / ("shop.toml" if text is TOML else "shop.py")
        self._file.write_text(text.format(**given))

    def trade(self) -> None:
        """Some changes."""
        self._next += 1
        self.source.run("INSERT INTO orders VALUES (%s, 'new')", self._next)
        self.source.run("UPDATE orders SET v = 'u' WHERE id = 2; DELETE FROM orders WHERE id = 1")

    def works(self, *options: str) -> str:
        """Run it: the sink has what the source has.  What it said besides."""
        code, _, err = self._run(*options)
        assert code == 0, err
        assert self.sink.texts("orders", "id, v") == self.source.texts("orders", "id, v")
        return err

    def refused(self, *options: str) -> str:
        """Run it: it ends with 1 and one line, which is given."""
        code, out, err = self._run(*options)
        assert code == 1, out + err
        *before, last = err.splitlines()
        assert last.startswith("tailrace: "), err
        assert not any(line.startswith(("tailrace: ", "Traceback")) for line in before), err
        return last

    def _run(self, *options: str) -> tuple[int, str, str]:
        sys.argv[1:] = ["run", str(self._file), "--once", *options]
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._printed()
        for secret in (SECRET, servers.PASSWORD):
            assert secret not in out + err
            # by another process: one that closes the file of a database which it has open gives up its locks
            assert subprocess.run(["grep", "-rqF", secret, self.folder]).returncode == 1
        return int(ended.value.code or 0), out, err


@pytest.fixture(scope="module")
def databases(server: Postgres) -> Iterator[tuple[Place, Place]]:
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        for name in ("again_source", "again_sink"):
            admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        with Place(server, "again_source") as source, Place(server, "again_sink") as sink:
            yield source, sink


@pytest.fixture
def ends(databases: tuple[Place, Place]) -> Iterator[tuple[Place, Place]]:
    """A source and a sink, both empty again afterwards."""
    source, sink = databases
    yield source, sink
    source.drop_slots(source.connection)
    source.run("DROP TABLE IF EXISTS orders, elsewhere")
    source.run(f"DROP PUBLICATION IF EXISTS {source.name}")
    sink.run("DROP TABLE IF EXISTS orders; DROP SCHEMA IF EXISTS tailrace CASCADE")


@pytest.fixture
def opened(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Place, Place], Shop]:
    """What makes a shop of two places; all runs of it use the Spark that is there."""

    @contextmanager
    def shared(*_: Any, **__: Any) -> Iterator[Callable[[], SparkContext]]:
        yield lambda: spark.sparkContext

    def make(source: Place, sink: Place) -> Shop:
        monkeypatch.setenv("SHOP", source.uri)
        monkeypatch.setenv("WAREHOUSE", sink.uri)
        source.run("CREATE TABLE orders (id int PRIMARY KEY, v text)")
        source.run("INSERT INTO orders SELECT n, 'c' FROM generate_series(1, 40) n")
        return Shop(tmp_path, source, sink, capsys.readouterr)

    monkeypatch.setattr("tailrace.cli.pipeline.run._spark", shared)
    monkeypatch.setattr(sys, "argv", ["tailrace"])
    return make


@pytest.fixture
def shop(opened: Callable[[Place, Place], Shop], ends: tuple[Place, Place]) -> Shop:
    return opened(*ends)


@pytest.fixture
def clerk(shop: Shop) -> Iterator[str]:
    """A user of both databases who has no right to anything, and whose name no connection that is kept has."""
    name = f"clerk_{next(_numbers)}"
    shop.source.run(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    yield name
    for place in (shop.sink, shop.source):
        place.run(f"REASSIGN OWNED BY {name} TO postgres; DROP OWNED BY {name}")
    shop.source.run(f"DROP ROLE {name}")


def as_clerk(place: Place, name: str) -> str:
    return place.server.uri(place.name, user=name, password=SECRET)


# -- the ends
@pytest.mark.parametrize("end", ["SHOP", "WAREHOUSE"])
def test_a_password_is_wrong(shop: Shop, clerk: str, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """At first, and once more after it has worked."""
    monkeypatch.setenv(end, as_clerk(shop.source if end == "SHOP" else shop.sink, clerk))
    shop.source.run(f"ALTER ROLE {clerk} SUPERUSER")
    for _ in range(2):
        shop.source.run(f"ALTER ROLE {clerk} PASSWORD 'other'")
        assert f'password authentication failed for user "{clerk}"; check user and password' in shop.refused()
        shop.trade()
        shop.source.run(f"ALTER ROLE {clerk} PASSWORD '{SECRET}'")
        shop.works()


def test_a_table_is_not_there_yet(shop: Shop) -> None:
    shop.source.run("ALTER TABLE orders RENAME TO elsewhere")
    shop.sink.run("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    code, _, err = shop._run()
    assert code == 0
    assert "matches nothing that is there; there are: public.elsewhere; what does, once it is there, is copied" in err
    shop.source.run("ALTER TABLE elsewhere RENAME TO orders")
    shop.works()
    shop.trade()
    shop.works()


def test_the_log_level_is_too_low(opened: Callable[[Place, Place], Shop], ends: tuple[Place, Place]) -> None:
    with folder(None) as data:
        low = lambda: servers.postgres(data=data, settings=FAST | {"wal_level": "replica"})  # noqa: E731
        with started("PostgreSQL 18", low) as server, Place(server, "postgres") as source:
            shop = opened(source, ends[1])
            assert "ALTER SYSTEM SET wal_level = 'logical'; and restart the server" in shop.refused()
            shop.trade()
        with started("PostgreSQL 18", lambda: servers.postgres(data=data, port=server.port, settings=FAST)), source:
            shop.works()


def test_rights_are_missing_at_the_source(shop: Shop, clerk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each given as the error says."""
    monkeypatch.setenv("SHOP", as_clerk(shop.source, clerk))
    assert f"ALTER ROLE {clerk} REPLICATION;" in shop.refused()
    shop.source.run(f"ALTER ROLE {clerk} REPLICATION")
    text = shop.refused()
    assert "CREATE PUBLICATION" in text
    shop.source.run(text[text.index("CREATE PUBLICATION") :])
    assert "permission denied for table orders" in shop.refused()
    shop.trade()
    shop.source.run(f"GRANT SELECT ON orders TO {clerk}")
    shop.works()
    shop.trade()
    shop.works()


def test_rights_are_missing_at_the_sink(shop: Shop, clerk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE", as_clerk(shop.sink, clerk))
    text = shop.refused()
    assert "where offsets are kept; GRANT CREATE ON DATABASE" in text
    shop.sink.run(text[text.index("GRANT") :])
    shop.sink.run("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    assert "permission denied for table orders" in shop.refused()
    shop.trade()
    shop.sink.run(f"GRANT ALL ON orders TO {clerk}")
    shop.works()


def test_the_slot_is_in_use(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HELD_SECONDS", 0.2)
    shop.works()
    with Drive(shop.source, None, ["public.orders"]) as other:
        other.begin()
        next(other._reader.follow(other.position, other.namespaces))
        assert "is in use by pid" in shop.refused()
        shop.trade()
    shop.works()


# -- the sink's tables
def test_the_sink_has_no_table(shop: Shop) -> None:
    shop.write(sink="")
    text = shop.refused()
    assert "the sink has no table for public.orders, and this writer has not written one" in text
    shop.trade()
    shop.sink.run(text[text.index("CREATE TABLE") :].partition(";")[0])
    shop.works()


def test_the_sinks_table_has_another_schema(shop: Shop) -> None:
    """First it lacks a column, then the column has a type that the values are not of."""
    shop.sink.run("CREATE TABLE orders (id int PRIMARY KEY)")
    assert "has no column v; set alter = true, or: ALTER TABLE" in shop.refused()
    shop.sink.run("ALTER TABLE orders ADD COLUMN v int")
    text = shop.refused()
    assert "stopped at message" in text
    assert "column v, id" in text
    shop.trade()
    shop.sink.run("ALTER TABLE orders ALTER COLUMN v TYPE text")
    shop.works()


def test_the_sink_cannot_hold_a_value(shop: Shop) -> None:
    """Copied it could; what came after the one that stops it waits."""
    shop.sink.run("CREATE TABLE orders (id int PRIMARY KEY, v varchar(5))")
    shop.works()
    shop.source.run("INSERT INTO orders VALUES (77, 'far too long')")
    shop.trade()
    text = shop.refused()
    assert "stopped at message" in text
    assert "(public.orders, id 77)" in text
    assert "value too long for type character varying(5)" in text
    shop.trade()
    assert shop.refused() == text
    shop.sink.run("ALTER TABLE orders ALTER COLUMN v TYPE text")
    shop.works()


# -- the file
def test_a_function_raises(shop: Shop) -> None:
    shop.write(function='assert message.id != "17", "not that one"')
    text = shop.refused()
    assert "(public.orders, id 17): AssertionError: not that one; mend the cause and run again, or pass it" in text
    assert text.endswith(" --why …`")
    shop.trade()
    assert shop.refused() == text
    shop.write()
    assert "changed since the last run: the functions of the writer 'postgres'" in shop.works()


@pytest.mark.parametrize("text", [FILE, TOML], ids=["python", "toml"])
@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        ({"sink": ", craete=true"}, "the sink 'postgres' has no 'craete'; did you mean 'create'?"),
        ({"branch": "orders("}, "the namespace 'orders(' is not a regular expression"),
    ],
    ids=["a typo", "no regular expression"],
)
def test_the_file_is_wrong(shop: Shop, text: str, spoilt: dict[str, str], told: str) -> None:
    good = {"sink": ", create=True" if text is FILE else ", create=true"}
    shop.write(text, **good | {k: v.replace("true", "True") if text is FILE else v for k, v in spoilt.items()})
    assert told in shop.refused()
    assert not (shop.folder / "home").exists()
    shop.write(text, **good)
    assert "changed" not in shop.works()


@pytest.mark.parametrize("end", ["SHOP", "WAREHOUSE"])
def test_a_variable_is_not_set(shop: Shop, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    with monkeypatch.context() as without:
        without.delenv(end)
        assert f"uri uses ${{{end}}}, which is not set; export {end}=…" in shop.refused("--json")
    shop.works()


def test_the_file_has_changed_so_that_data_would_be_lost(shop: Shop) -> None:
    shop.works()
    shop.write(partitions="3", sink=', create=True, schema="elsewhere"')
    text = shop.refused()
    assert "has changed since it last ran; partitions was 2, is 3" in text
    assert "the writer 'postgres' has another schema: what it had taken is not there" in text
    shop.trade()
    shop.write()
    assert "changed" not in shop.works()


def test_a_second_run_at_once(shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LEASE_WAIT", 0.2)
    with going(load(shop._file), spark) as runner:
        until(lambda: caught_up(runner))
        assert f"the pipeline 'shop' is running already, in process {os.getpid()} on" in shop.refused()
        shop.trade()
    shop.works()
