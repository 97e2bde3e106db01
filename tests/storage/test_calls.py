"""Carrying out steps: blocking and in asyncio, errors thrown where they belong."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from tailrace.errors import BadInput, ObjectMissing
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store, backoff
from tailrace.storage.tables import Absent, Key, Put
from tailrace.testing import SimulatedObjects, SimulatedTable


def everything() -> Steps[list[Any]]:
    """Each kind of call once."""
    out: list[Any] = []
    out.append((yield from calls.write(Put(Key("p", 1), {"n": 1}, (Absent(),)))))
    out.append((yield from calls.get(Key("p", 1))))
    out.append((yield from calls.query("p")).items)
    yield from calls.put_object("a/b", [b"one", b"two"])
    out.append([bytes(x) for x in (yield from calls.get_object("a/b", ((0, 3), (4, 9))))])
    out.append([bytes(x) for x in (yield from calls.get_object("a/b"))])
    out.append([o.name for o in (yield from calls.list_objects("a/"))])
    yield from calls.delete_objects(["a/b"])
    try:
        yield from calls.get_object("a/b")
    except ObjectMissing as error:
        out.append(error.name)
    yield from calls.pause(0)
    out.append((yield from calls.now()) > 0)
    return out


ITEM = {"n": 1, "p": "p", "i": 1}
ANSWERS = [(ITEM,), ITEM, [ITEM], [b"one", b"wo"], [b"onetwo"], ["a/b"], "a/b", True]


def new_store() -> Store:
    return Store(SimulatedTable(), SimulatedObjects())


def test_blocking_and_in_asyncio_alike() -> None:
    assert new_store().run(everything()) == ANSWERS
    assert asyncio.run(new_store().arun(everything())) == ANSWERS


def failing() -> Steps[None]:
    yield from calls.get(Key("p"))
    raise BadInput("mine")


def test_what_steps_raise_comes_out() -> None:
    with pytest.raises(BadInput, match="mine"):
        new_store().run(failing())
    with pytest.raises(BadInput, match="mine"):
        asyncio.run(new_store().arun(failing()))


def test_steps_that_ask_for_nothing() -> None:
    def nothing() -> Steps[int]:
        return 7
        yield

    assert new_store().run(nothing()) == 7
    assert asyncio.run(new_store().arun(nothing())) == 7


def test_an_interruption_ends_the_steps() -> None:
    store, ended = new_store(), []

    def careful() -> Steps[None]:
        try:
            yield from calls.get(Key("p"))
        finally:
            ended.append(True)

    def interrupted(key: Key) -> None:
        raise KeyboardInterrupt

    store.table.get = interrupted  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        store.run(careful())
    assert ended == [True]


def test_asyncio_is_not_blocked_by_a_call() -> None:
    store, gate = new_store(), threading.Event()
    get = store.table.get
    store.table.get = lambda key: (gate.wait(10), get(key))[1]  # type: ignore[method-assign]

    async def main() -> None:
        slow = asyncio.create_task(store.arun(calls.get(Key("p"))))
        await asyncio.sleep(0.01)
        assert not slow.done()
        gate.set()
        assert await slow is None

    asyncio.run(main())


def test_pauses_grow_and_differ() -> None:
    rng = random.Random(1)
    for attempt, most in [(0, 0.01), (3, 0.08), (7, 1.28), (10, 2.0), (100, 2.0)]:
        drawn = [backoff(attempt, rng) for _ in range(200)]
        assert 0 <= min(drawn) < most / 4
        assert most / 2 < max(drawn) <= most


def test_closing_closes_both() -> None:
    store = new_store()
    store.close()
    for call in (calls.get(Key("p")), calls.list_objects("a/")):
        with pytest.raises(Exception, match="closed"):
            store.run(call)  # type: ignore[arg-type]
