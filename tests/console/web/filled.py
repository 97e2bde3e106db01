"""A home with some of everything, most of it hostile: scripts and turned-around text wherever anybody can write."""

from __future__ import annotations

import json

from tailrace.events import Event
from tailrace.home import Home
from tailrace.pipeline.operate import ledger
from tailrace.streams import Engine, hash_key, model

SCRIPT = "<script>window.hurt=1</script>"
IMAGE = "\"'><img src=x onerror=window.hurt=1>"
LARGE = 9007199254740993
"""One more than a JavaScript number can count to."""


@model(stream={"new", "old"})
class Person:
    """An item of a table with a change stream."""

    name: str = hash_key()
    about: str = ""


def fill(home: Home) -> None:
    """Put it all in."""
    orders = home.topic("orders", partitions=2)
    with orders.transaction() as out:
        out.send(b"plain", b"hello", partition=0)
        out.send(SCRIPT.encode(), f"{IMAGE} {SCRIPT}".encode(), headers=[(SCRIPT, IMAGE.encode())], partition=0)
        out.send(b"json", json.dumps({"id": LARGE, "note": SCRIPT, "price": 1.10}).encode(), partition=0)
        out.send(b"\x00\xff", bytes(range(256)), partition=1)
        out.send(b"turned", "a\u202egnp.exe\x1b[31m".encode(), partition=1)
    consumer = orders.consumer("billing")
    next(iter(consumer))
    consumer.close()
    _fill_queue(home)
    _fill_events(home)
    engine = home.engine()
    engine.bind(Person)
    engine.save(Person(SCRIPT, IMAGE))
    _fill_stream_group(engine)


def _fail(record: object) -> None:
    raise ValueError(f"cannot mail {SCRIPT}{IMAGE}")


def _fill_stream_group(engine: Engine) -> None:
    """A group whose handler has failed at one change, and that has one to come."""

    engine.consumer(Person, "mailer", _fail, on_error="dead_letter", attempts=1).run(until_caught_up=True)
    engine.save(Person(SCRIPT, "later"))


def _fill_queue(home: Home) -> None:
    mails = home.queue("mails", pusher=SCRIPT)
    mails.make(2, attempts=1)

    def fail(envelope: object) -> None:
        raise ValueError(f"cannot send {SCRIPT}{IMAGE}")

    mails.push({"to": SCRIPT, "number": LARGE}, shard_key=IMAGE)
    with mails.tail(fail):
        mails.drain(30)
    mails.push({"to": "later"}, shard_key="k")


def _fill_events(home: Home) -> None:
    cart = home.events().stream("Cart-1/<b>")
    data = json.dumps({"who": SCRIPT, "id": LARGE}).encode()
    cart.append([Event(SCRIPT, data, IMAGE.encode(), "first", "conversation", ""),
                 Event("Paid", data, b"", "second", "conversation", "first")])  # fmt: skip
    home.events().feed().consumer("teller", _fail, on_error="dead_letter", attempts=1).run(until_caught_up=True)
    ledger.note(home, "_home", f"pause queue {SCRIPT}", IMAGE, topic=SCRIPT)
