"""A shop's database, copied and followed into another database and into Parquet, on Spark, with a kill -9 in between.

make demo, or: python -m examples.demo_shop [SECONDS]
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
from tailrace.pipeline.operate import ledger

CUSTOMERS, ORDERS = 2_000, 30_000
PIPELINE = '''"""The shop, into a warehouse and into files."""

import tailrace
from tailrace.pipeline.functions import omit

pipeline = (
    tailrace.pipeline("shop", home="./home")
    .source("postgres", uri="${SHOP}", namespace=r"^public\\.")
    .branch().transform(omit("card_number")).save("postgres", uri="${WAREHOUSE}", create=True)
    .branch(namespace=r"\\.orders$").save("file", path="./orders", format="parquet")
)
'''
NEXT = """
Try next:
  .venv/bin/tailrace init postgres file      a pipeline of your own, with every setting explained
  .venv/bin/tailrace about postgres          what an adaptor can do
  docs/guide/pipelines.md                    the guide"""


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
        print("$ tailrace run pipeline.py", flush=True)
        self._home, self._began = folder / "home", time.time()
        alone = {**environment, "TAILRACE_SPARK_ARCHIVE": "off"}  # nothing is left behind on this machine
        self.process = subprocess.Popen(command, cwd=folder, env=alone)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """Without a word; the cursor, which the live view had hidden, comes back."""
        self.process.kill()
        self.process.wait()
        print("\x1b[?25h" if sys.stdout.isatty() else "", flush=True)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        if code:
            sys.exit(f"the pipeline ended with {code}")

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
        sys.exit(f"the pipeline did not come to {what} in {seconds:.0f} s")

    def _status(self) -> dict[str, Any] | None:
        try:
            with tailrace.open(self._home) as home:
                status = ledger.reported(home, "shop")
        except tailrace.TailraceError:
            return None
        return status if status["at"] / 1000 > self._began else None


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
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as place, postgres() as server:
        return demonstrate(server, Path(place), seconds)


def demonstrate(server: Postgres, folder: Path, seconds: float) -> int:
    """Copy and follow a shop; kill -9 after some seconds of following, and once more after the restart."""
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
        admin.execute("CREATE DATABASE warehouse")
    (folder / "pipeline.py").write_text(PIPELINE)
    with (
        psycopg.connect(server.uri("shop"), autocommit=True) as shop,
        psycopg.connect(server.uri("warehouse"), autocommit=True) as warehouse,
    ):
        fill(shop)
        size = f"{CUSTOMERS:,} customers and {ORDERS:,} orders"
        print(f"A shop with {size} in PostgreSQL {server.version}, which come and go all the time.")
        print(f"A pipeline copies it, and follows, into a warehouse and into Parquet:\n\n{PIPELINE}")
        counts = watch(server, folder, seconds)
        made = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
        print(f"\n{sum(counts.values()):,} changes while it ran ({made}).  Source and sinks, row by row:")
        same = compare(shop, warehouse, folder / "orders")
    print(NEXT if same else "\nNOT THE SAME")
    return 0 if same else 1


def watch(server: Postgres, folder: Path, seconds: float) -> dict[str, int]:
    """The pipeline at work, while orders come, are paid and are cancelled; how many did."""
    environment = {**os.environ, "SHOP": server.uri("shop"), "WAREHOUSE": server.uri("warehouse")}
    stop, counts = threading.Event(), dict[str, int]()
    trading = threading.Thread(target=trade, args=(server.uri("shop"), stop, counts))
    trading.start()
    try:
        with Run(folder, environment) as run:
            run.wait("having copied the shop", following)
            time.sleep(seconds)
            run.kill()
        print("kill -9: the pipeline is gone in the middle of its work.  Again:\n")
        with Run(folder, environment) as run:
            run.wait("following again", following)
            time.sleep(seconds)
            stop.set()
            trading.join()
            time.sleep(3)
            run.wait("the end", caught_up)
            run.stop()
    finally:
        stop.set()
        trading.join()
    return counts


if __name__ == "__main__":
    sys.exit(main())
