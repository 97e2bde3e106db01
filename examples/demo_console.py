"""A home in which everything moves, and the console that shows it: producers and readers of topics, a queue with
workers, an event store with a consumer of its feed, a table with a change stream; with --pipeline also a shop in
PostgreSQL that a pipeline copies and follows on Spark.

make console-demo, or: python -m examples.demo_console [--pipeline] [--port PORT] [--seconds SECONDS]
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import tailrace
from tailrace.events import Event
from tailrace.home import Home
from tailrace.queue.envelope import Envelope
from tailrace.streams import hash_key, model

ITEMS = ("tea", "mug", "kettle", "honey", "strainer", "tin")
PEOPLE = ("ada", "ben", "chloe", "dev", "eva", "finn", "grete", "hana")
json = msgspec.json.encode


@model(stream={"new", "old"})
class Customer:
    """A customer, as an item of a table with a change stream."""

    name: str = hash_key()
    orders: int = 0
    newsletter: bool = False


def produce(home: Home, stop: threading.Event) -> None:
    """Clicks, some hundred a second with bursts; orders, a few a second; payments that refer to them."""
    rng, number = random.Random(1), 0
    topics = [home.topic(name, partitions=n) for name, n in (("clicks", 6), ("orders", 3), ("payments", 1))]
    with contextlib.ExitStack() as stack:
        clicks, orders, payments = (stack.enter_context(topic.producer()) for topic in topics)
        while not stop.wait(0.1):
            for _ in range(rng.choice((5, 10, 20, 80))):
                who = rng.choice(PEOPLE)
                clicks.send(who.encode(), json({"who": who, "page": f"/shop/{rng.choice(ITEMS)}"}))
            if rng.random() < 0.5:
                number += 1
                order = {"order": number, "customer": rng.choice(PEOPLE), "item": rng.choice(ITEMS),
                         "total": rng.randint(300, 9000) / 100, "trace": 9007199254740993 + number}  # fmt: skip
                orders.send(order["customer"].encode(), json(order), headers=[("trace-id", uuid.uuid4().hex.encode())])
                if rng.random() < 0.8:
                    payments.send(str(number).encode(), json({"order": number, "paid": order["total"]}))


def read(home: Home, stop: threading.Event, topic: str, group: str, pause: float) -> None:
    """A group that reads a topic, one record after the other, as fast as it can or slower."""
    with home.topic(topic).consumer(group) as consumer:
        for _ in consumer:
            if stop.wait(pause) if pause else stop.is_set():
                return


def push(home: Home, stop: threading.Event) -> None:
    """Mails to send, some of them later."""
    rng, mails = random.Random(2), home.queue("mails")
    while not stop.wait(0.25):
        who = rng.choice(PEOPLE)
        mails.push({"to": f"{who}@example.org", "about": rng.choice(ITEMS)}, shard_key=who,
                   not_before=rng.choice((None, None, None, 20.0)))  # fmt: skip


def mail(envelope: Envelope) -> None:
    """Send one; strainers are out of stock, and a message about them is given up after some attempts."""
    time.sleep(0.05)
    if envelope.message["about"] == "strainer":
        raise ValueError("no template for <strainer>: sold out")


def shop(home: Home, stop: threading.Event) -> None:
    """Carts are filled and paid for; each event says which one caused it."""
    rng, cart = random.Random(3), 0
    engine, events = home.engine(), home.events()
    engine.bind(Customer)
    while not stop.wait(0.4):
        cart += 1
        who, flow, cause = rng.choice(PEOPLE), uuid.uuid4().hex, ""
        for kind in ("CartOpened", "ItemAdded", "ItemAdded", "CheckedOut")[: rng.randint(2, 4)]:
            event = Event(kind, json({"who": who, "item": rng.choice(ITEMS)}), b"", uuid.uuid4().hex, flow, cause)
            events.stream(f"Cart-{cart % 40}").append([event])
            cause = event.id
        engine.save(Customer(who, orders=cart, newsletter=rng.random() < 0.5))


def follow(home: Home, stop: threading.Event) -> None:
    """A consumer of the feed of all events."""
    with contextlib.suppress(tailrace.TailraceError):
        while not stop.wait(1.0):
            home.events().feed().consumer("receipts", lambda event: None).run(until_caught_up=True)


@contextlib.contextmanager
def moving(home: Home) -> Iterator[None]:
    """Everything at work, for the length of a block."""
    stop = threading.Event()
    home.topic("clicks", partitions=6)
    home.topic("orders", partitions=3)
    mails = home.queue("mails")
    mails.make(6, attempts=2, backoff=0.5)
    work: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        (produce, ()), (read, ("clicks", "dashboards", 0.0)), (read, ("orders", "billing", 0.4)), (push, ()),
        (shop, ()), (follow, ()),
    ]  # fmt: skip
    threads = [threading.Thread(target=one, args=(home, stop, *more), daemon=True) for one, more in work]
    with mails.tail(mail):
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(10)


@contextlib.contextmanager
def pipeline(folder: Path) -> Iterator[None]:
    """A shop in PostgreSQL, and a pipeline on Spark that copies and follows it into the same home."""
    import psycopg
    from tests.servers.postgres import postgres

    from examples import demo_shop

    stop, counts = threading.Event(), dict[str, int]()
    with postgres() as server:
        with psycopg.connect(server.uri(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop")
            admin.execute("CREATE DATABASE warehouse")
        with psycopg.connect(server.uri("shop"), autocommit=True) as database:
            demo_shop.fill(database)
        (folder / "pipeline.py").write_text(demo_shop.PIPELINE)
        environment = {**os.environ, "SHOP": server.uri("shop"), "WAREHOUSE": server.uri("warehouse")}
        trading = threading.Thread(target=demo_shop.trade, args=(server.uri("shop"), stop, counts), daemon=True)
        trading.start()
        command = [str(Path(sys.executable).parent / "tailrace"), "run", "pipeline.py"]
        with (folder / "pipeline.log").open("wb") as log:
            run = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            stop.set()
            trading.join()
            run.terminate()
            run.wait(60)


def main() -> None:
    """Start it all, print the address, and go on until Ctrl-C."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--pipeline", action="store_true", help="with a pipeline on Spark; needs Java and PostgreSQL")
    asked.add_argument("--port", default="0")
    asked.add_argument("--seconds", type=float, default=None, help="end after so long; default: at Ctrl-C")
    given = asked.parse_args()
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)  # handlers fail here on purpose
    with tempfile.TemporaryDirectory(prefix="tailrace-console-") as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        home = stack.enter_context(tailrace.open(folder / "home"))
        stack.enter_context(moving(home))
        if given.pipeline:
            stack.enter_context(pipeline(folder))
        program = "from tailrace.cli.main import main; main()"
        words = [sys.executable, "-c", program, "serve", "--home", str(folder / "home"), "--port", given.port]
        server = subprocess.Popen(words)
        try:
            server.wait(given.seconds)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            print("ending", file=sys.stderr)
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
