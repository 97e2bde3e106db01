"""A shop's database, copied and followed into another database and into Parquet, on Spark, with a kill -9 in between.

make demo, or: python -m examples.demo_shop
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from tests.servers.postgres import Postgres, postgres

import tailrace
from tailrace.pipeline import ledger

CUSTOMERS, ORDERS = 2_000, 30_000
PIPELINE = '''"""The shop, into a warehouse and into files."""

import tailrace
from tailrace.pipeline.functions import omit

pipeline = (
    tailrace.pipeline("shop", home="./home")
    .source("postgres", uri="${SHOP}", namespace=r"^public\\.")
    .branch().transform(omit("card_number")).save("postgres", uri="${WAREHOUSE}", create=True)
    .branch(namespace=r"orders$").save("file", path="./orders", format="parquet")
)
'''


def fill(shop: psycopg.Connection[Any]) -> None:
    """A small shop."""
    shop.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, card_number text, since date)")
    shop.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, total numeric(10,2), paid bool, at timestamptz)"
    )
    shop.execute(
        "INSERT INTO customers SELECT n, 'customer ' || n, '4111-' || n, date '2020-01-01' + n % 900 "
        f"FROM generate_series(1, {CUSTOMERS}) n"
    )
    shop.execute(
        f"INSERT INTO orders SELECT n, 1 + n % {CUSTOMERS}, (n % 5000) / 7.0, n % 3 = 0, now() "
        f"FROM generate_series(1, {ORDERS}) n"
    )
    shop.execute("ANALYZE")


def trade(uri: str, stop: threading.Event, counts: dict[str, int]) -> None:
    """Orders come, are paid, and are cancelled."""
    rng, last = random.Random(7), ORDERS
    with psycopg.connect(uri, autocommit=True) as shop:
        while not stop.wait(0.004):
            kind = rng.choices(("new", "paid", "cancelled"), (5, 4, 1))[0]
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "new":
                last += 1
                shop.execute(
                    "INSERT INTO orders VALUES (%s, %s, %s, false, now())",
                    (last, rng.randint(1, CUSTOMERS), rng.randint(1, 99999) / 100),
                )
            elif kind == "paid":
                shop.execute("UPDATE orders SET paid = true, total = total + 1 WHERE id = %s", (rng.randint(1, last),))
            else:
                shop.execute("DELETE FROM orders WHERE id = %s", (rng.randint(1, last),))


class Run:
    """`tailrace run` in a process of its own, showing its live view here."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        command = [str(Path(sys.executable).parent / "tailrace"), "run", "pipeline.py"]
        self._home, self.process = folder / "home", subprocess.Popen(command, cwd=folder, env=environment)

    def wait(self, what: str, ready: Any, seconds: float = 240) -> None:
        """Until its status says so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                sys.exit(f"the pipeline ended with {self.process.returncode} before {what}")
            status = self._status()
            if status is not None and ready(status):
                return
            time.sleep(0.5)
        self.process.kill()
        sys.exit(f"the pipeline did not come to {what} in {seconds:.0f} s")

    def _status(self) -> dict[str, Any] | None:
        try:
            with tailrace.open(self._home) as home:
                status = ledger.reported(home, "shop")
        except tailrace.TailraceError:
            return None
        return status if time.time() - status["at"] / 1000 < 10 else None


def following(status: dict[str, Any]) -> bool:
    """Everything is copied, and the writers are close behind."""
    copied = status["sources"] and all(s["phase"] == "sync" for s in status["sources"].values())
    return bool(copied and status["sinks"] and all(s["rows"] and s["lag"] < 2000 for s in status["sinks"].values()))


def caught_up(status: dict[str, Any]) -> bool:
    """The writers have all there is."""
    return following(status) and all(s["lag"] == 0 for s in status["sinks"].values())


def rows(database: psycopg.Connection[Any], query: str) -> list[Any]:
    """All of a query."""
    return database.execute(query).fetchall()  # type: ignore[arg-type]


def orders_in(folder: Path) -> dict[int, Any]:
    """The orders that the files say there are: the last word about each."""
    found: dict[int, Any] = {}
    for batch in sorted(folder.glob("*/batch-*")):
        for part in sorted(batch.glob("*.parquet")):
            for row in pq.read_table(part).to_pylist():
                if row["_op"] == "delete":
                    found.pop(row["id"], None)
                else:
                    found[row["id"]] = (row["id"], row["customer"], row["total"], row["paid"], row["at"])
    return found


def compare(shop: psycopg.Connection[Any], warehouse: psycopg.Connection[Any], folder: Path) -> bool:
    """Source and sinks, row by row."""
    everything = "SELECT id, customer, total, paid, at FROM orders ORDER BY id"
    people = "SELECT id, name, since FROM customers ORDER BY id"
    source = rows(shop, everything)
    checks = {
        f"warehouse.orders     {len(source):,} rows": source == rows(warehouse, everything),
        f"warehouse.customers  {CUSTOMERS:,} rows": rows(shop, people) == rows(warehouse, people),
        f"orders in Parquet    {len(source):,} rows": [orders[1] for orders in sorted(orders_in(folder).items())]
        == source,
    }
    for what, same in checks.items():
        print(f"  {'✓ the same' if same else '✗ DIFFERENT'}   {what}")
    return all(checks.values())


def main() -> int:
    """The whole story; 0 if all is the same in the end."""
    with postgres() as server, tempfile.TemporaryDirectory(prefix="tailrace-demo-") as place:
        return demonstrate(server, Path(place))


def demonstrate(server: Postgres, folder: Path) -> int:
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
        admin.execute("CREATE DATABASE warehouse")
    (folder / "pipeline.py").write_text(PIPELINE)
    environment = {**os.environ, "SHOP": server.uri("shop"), "WAREHOUSE": server.uri("warehouse")}
    shop = psycopg.connect(server.uri("shop"), autocommit=True)
    warehouse = psycopg.connect(server.uri("warehouse"), autocommit=True)
    fill(shop)
    print(
        f"a shop with {CUSTOMERS:,} customers and {ORDERS:,} orders, in PostgreSQL {server.version}; they come and go\n"
    )
    stop, counts = threading.Event(), dict[str, int]()
    trading = threading.Thread(target=trade, args=(server.uri("shop"), stop, counts))
    trading.start()
    try:
        first = Run(folder, environment)
        first.wait("having copied the shop", following)
        time.sleep(5)
        first.process.kill()
        first.process.wait()
        print("\n\nkill -9: the pipeline is gone in the middle of its work.  Starting it again …\n")
        second = Run(folder, environment)
        second.wait("following again", following)
        time.sleep(10)
    finally:
        stop.set()
        trading.join()
    time.sleep(3)
    second.wait("the end", caught_up)
    second.process.send_signal(signal.SIGINT)
    second.process.wait()
    print(f"\n{sum(counts.values()):,} changes while it ran: {', '.join(f'{n:,} {k}' for k, n in counts.items())}")
    same = compare(shop, warehouse, folder / "orders")
    shop.close()
    warehouse.close()
    print(
        "\nnext: tailrace init postgres file · tailrace about postgres · docs/guide/pipelines.md"
        if same
        else "\nNOT THE SAME"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
