"""The pipelines that people copy from the README, run as they stand there: two PostgreSQLs, and a card number."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.cli.runs import PROGRAM
from tests.docs.test_examples import ROOT, blocks, environment
from tests.servers.postgres import Postgres, postgres
from tests.servers.process import Missing

CARD = "4111-1111-1111-1111"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        with postgres() as made:
            yield made
    except Missing as missing:
        pytest.skip(str(missing))


def example() -> str:
    """The README's pipeline."""
    (found,) = [b.text for b in blocks((ROOT / "README.md").read_text()) if ".source(" in b.text]
    return found


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_pipeline_of_the_readme_into_an_empty_database(server: Postgres, tmp_path: Path) -> None:
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
        admin.execute("CREATE DATABASE empty")
    with psycopg.connect(server.uri("shop"), autocommit=True) as shop:
        shop.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, card_number text)")
        shop.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric, card_number text)")
        shop.execute("INSERT INTO customers VALUES (1, 'ann', %s)", (CARD,))
        shop.execute("INSERT INTO orders VALUES (7, 12.5, %s), (8, 3, %s)", (CARD, CARD))
    (tmp_path / "shop.py").write_text(example())
    env = {**environment(), "SHOP_PG": server.uri("shop"), "COPY_PG": server.uri("empty")}
    done = subprocess.run(
        [PROGRAM, "run", "shop.py", "--once"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(server.uri("empty")) as copy:
        found = copy.execute("SELECT * FROM orders ORDER BY id").fetchall()
        columns = copy.execute("SELECT table_name, column_name FROM information_schema.columns").fetchall()
    assert [(id, float(total)) for id, total in found] == [(7, 12.5), (8, 3.0)]
    assert "card_number" not in {column for _, column in columns}
    files = list((tmp_path / "out").rglob("*.parquet"))
    assert {file.relative_to(tmp_path / "out").parts[0] for file in files} == {"public.customers", "public.orders"}
    for file in files:
        assert "card_number" not in pq.read_schema(file).names
        assert CARD.encode() not in file.read_bytes()
