"""The pipeline of each database on a Spark cluster of two workers, one of which is killed while tables are copied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.pipeline.define.definition import Definition
from tests.adaptors.dynamodb.place import Place as Items
from tests.adaptors.dynamodb.test_killed_runs import Shop as ItemShop
from tests.adaptors.killed_runs import Load, Trade, check_journal
from tests.adaptors.mongodb.conftest import fresh as fresh_documents
from tests.adaptors.mongodb.test_killed_runs import Shop as DocumentShop
from tests.adaptors.mysql.conftest import fresh as fresh_rows
from tests.adaptors.mysql.test_killed_runs import Shop as RowShop
from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.pipeline.runs import process, until
from tests.servers import mariadb as mariadbs
from tests.servers import mongodb as mongodbs
from tests.servers import mysql as mysqls
from tests.servers.mysql import FAST
from tests.servers.prepare import SHORT_LIVED
from tests.servers.process import Server
from tests.spark.cluster import Cluster, cluster

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def standing(dynoxide: Server) -> Iterator[Cluster]:
    """A cluster whose workers have credentials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", dynoxide.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", dynoxide.secret)
        patch.setenv("AWS_REGION", dynoxide.region)
        with cluster() as made:
            yield made


Opened = contextlib.ExitStack


def of_mysql(stack: Opened, warehouse: Tables, folder: Path, dynoxide: Server, *, flavor: str = "mysql") -> Trade:
    start = mysqls.mysql if flavor == "mysql" else mariadbs.mariadb
    server = stack.enter_context(started(flavor, lambda: start(settings=FAST)))
    fresh = contextlib.contextmanager(fresh_rows)
    source, sink = stack.enter_context(fresh(server, "source")), stack.enter_context(fresh(server, "sink"))
    shop = RowShop(source, sink, warehouse, folder)
    stack.callback(shop.close)
    return shop


def of_mariadb(stack: Opened, warehouse: Tables, folder: Path, dynoxide: Server) -> Trade:
    return of_mysql(stack, warehouse, folder, dynoxide, flavor="mariadb")


def of_mongodb(stack: Opened, warehouse: Tables, folder: Path, dynoxide: Server) -> Trade:
    server = stack.enter_context(started("MongoDB", mongodbs.mongod))
    fresh = contextlib.contextmanager(fresh_documents)
    source, sink = stack.enter_context(fresh(server, "source")), stack.enter_context(fresh(server, "sink"))
    return DocumentShop(source, sink, warehouse, folder)


def of_dynamodb(stack: Opened, warehouse: Tables, folder: Path, dynoxide: Server) -> Trade:
    return ItemShop(stack.enter_context(Items(dynoxide)), warehouse, folder)


@pytest.mark.parametrize("made", [of_mysql, of_mariadb, of_mongodb, of_dynamodb])
def test_a_worker_is_killed(
    standing: Cluster, warehouse: Tables, tmp_path: Path, dynoxide: Server, made: Callable[..., Trade]
) -> None:
    with contextlib.ExitStack() as stack:
        trade = made(stack, warehouse, tmp_path, dynoxide)
        (tmp_path / "shop.py").write_text(written(trade.definition))
        load = Load(trade)
        more = ["--master", standing.master, "--conf", "spark.executor.memory=500m"]
        more += ["--conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"]
        with load.going():
            with process(tmp_path, "run", "shop.py", *more) as run:
                until(lambda: said(tmp_path, "copying") or run.poll() is not None, 400)
                standing.kill("two")
                trade.drift("before finish 0")
                until(lambda: said(tmp_path, "following") or run.poll() is not None, 600)
                assert run.poll() is None, (tmp_path / "said").read_text()
                for death in ("within position", "after position", "before finish 1"):
                    trade.drift(death)
                standing.add("two")
                run.kill()
            until(lambda: standing.applications() == 0, 400)
        with process(tmp_path, "run", "shop.py", "--once", *more) as run:
            assert run.wait(800) == 0, (tmp_path / "said").read_text()
        trade.check()
        check_journal(trade.definition, load.steps)


def said(folder: Path, state: str) -> bool:
    return f"\n{state}" in (folder / "said").read_text()


def written(definition: Definition) -> str:
    """A pipeline's file."""
    source = definition.source
    sizes = f"partitions={definition.partitions}, piece_rows={definition.piece_rows}"
    lines = [
        f"tailrace.pipeline({definition.name!r}, home={definition.home!r}, {sizes})",
        f".source({source.adaptor!r}, namespace={source.namespace!r}, **{dict(source.settings)!r})",
        *(f".branch().save({sink.adaptor!r}, **{dict(sink.settings)!r})" for sink in definition.sinks),
    ]
    return "import tailrace\n\npipeline = (\n    {}\n)\n".format("\n    ".join(lines))
