"""Whole pipelines from and to Kafka, whose runs are killed: a reader of committed records sees every message once."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.adaptors.kafka.place import Place
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.pipeline.runs import process, until
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(600)]

COPY = """
import tailrace

pipeline = (
    tailrace.pipeline("copy", home="{home}/home", partitions=2)
    .source("kafka", brokers="${{KAFKA}}", prefix="{prefix}", namespace="^orders", discover=0.5)
    .save("kafka", brokers="${{KAFKA}}", topic="{prefix}copy", state="__{prefix}state")
)
"""
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "kafka.md"


def example(name: str, folder: Path, prefix: str, slot: str) -> str:
    """Write a file of the guide into a folder, with names of the test's own; gives its name."""
    found = re.search(rf"```python\n(# file: {name}\n.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    text = found[1].replace('prefix="shop."', f'prefix="{prefix}"').replace('slot="shop"', f'slot="{slot}"')
    text = text.replace("partitions=3)", f'partitions=3, state="__{prefix}state")')
    (folder / name).write_text(text)
    return name


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as made:
        yield made


def killed(folder: Path, file: str, env: dict[str, str], rounds: int, change: Callable[[], object]) -> None:
    """Run a pipeline, kill it at any moment while the source changes, some times; then let it catch up."""
    rng = random.Random(rounds)
    for n in range(rounds):
        with process(folder, "run", file, env=env) as run:
            until(lambda run=run, n=n: _follows(folder, n + 1) or run.poll() is not None, 300)
            assert run.poll() is None, (folder / "said").read_text()
            end = time.monotonic() + rng.uniform(0.3, 1.5)
            while time.monotonic() < end:
                change()
            run.kill()
    change()
    catch_up(folder, file, env)


def catch_up(folder: Path, file: str, env: dict[str, str]) -> None:
    with process(folder, "run", file, "--once", env=env) as run:
        assert run.wait(240) == 0, (folder / "said").read_text()


def _follows(folder: Path, times: int) -> bool:
    runs = (folder / "said").read_text().split("starting Spark")[1:]
    return len(runs) >= times and "\nfollowing" in runs[times - 1]


ROUNDS = [pytest.param(1), pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kafka_to_kafka(place: Place, tmp_path: Path, rounds: int) -> None:
    place.make("orders", 3)
    place.make("copy", 4)
    sent, made = 0, set[str]()

    def send(topic: str, many: int = 50) -> None:
        nonlocal sent
        numbers = range(sent, sent + many)
        place.send(topic, [(str(n % 97).encode(), {"n": n}) for n in numbers])
        sent += many

    def send_more() -> None:
        """Also to a topic that is new, in the first round."""
        if "late" not in made:
            place.make("orders-late", 2)
            made.add("late")
        send("orders-late")
        send("orders")

    send("orders", 3000)
    (tmp_path / "orders.py").write_text(COPY.format(home=tmp_path, prefix=place.prefix))
    killed(tmp_path, "orders.py", {"KAFKA": place.brokers}, rounds, send_more)
    found = place.read("copy")
    assert Counter(one.document["n"] for one in found) == Counter(range(sent)), "each message once"
    order: dict[bytes | None, list[int]] = {}
    for one in found:
        order.setdefault(one.key, []).append(one.document["n"])
    assert all(some == sorted(some) for some in order.values()), "of one key in their order"


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_database_through_kafka_into_files(place: Place, postgres: Postgres, tmp_path: Path, rounds: int) -> None:
    name = f"shop_{random.randrange(1 << 30)}"
    with psycopg.connect(postgres.uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    with Tables(postgres, name) as shop:
        shop.run("CREATE TABLE orders (id int PRIMARY KEY, v text, changes int)")
        shop.run("INSERT INTO orders SELECT n, 'copied', 0 FROM generate_series(1, 2000) n")
        rng, made = random.Random(3), [2000]

        def trade() -> None:
            made[0] += 1
            shop.run("INSERT INTO orders VALUES (%s, 'new', 0)", made[0])
            shop.run("UPDATE orders SET v = v || '.', changes = changes + 1 WHERE id = %s", rng.randrange(1, 2000))
            shop.run("DELETE FROM orders WHERE id = %s", rng.randrange(1, 2000))

        env = {"SHOP": shop.uri, "KAFKA": place.brokers}
        killed(tmp_path, example("outward.py", tmp_path, place.prefix, name), env, rounds, trade)
        catch_up(tmp_path, example("backward.py", tmp_path, place.prefix, name), env)
        rows = shop.ask("SELECT id, v, changes FROM orders ORDER BY id")
    changes = [one.document for one in place.read("public.orders") if one.value is not None]
    counted = Counter((one["op"], (one["after"] or one["before"])["id"], _nth(one)) for one in changes)
    assert set(counted.values()) == {1}, "each change once"
    assert sum(one["op"] in "rc" for one in changes) == made[0]
    files = sorted((tmp_path / "files").rglob("*.parquet"))
    kept = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert sorted((row["id"], row["v"], row["changes"]) for row in kept) == rows


def _nth(envelope: dict[str, dict[str, int]]) -> int:
    return (envelope["after"] or {}).get("changes", -1)
