"""Intake: a source's records and its position move together, once."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.log.topic_log import TopicLog
from tailrace.log.write.placement import place
from tailrace.log.write.source_append import SourceGuard, open_reader, reader_key, take_in
from tailrace.storage.calls import Store, Write
from tailrace.storage.tables import Item
from tests.log.driving import TABLES, Driven, chunk, land, new_log, simulated, stored, view


def batch(store: Store, log: TopicLog, item: Item, value: bytes, position: Any, **others: Any) -> Driven:
    """A life that takes in one record and moves to a position."""
    placed = store.run(place(log, chunk((0, value))))
    return Driven(store, take_in([placed], SourceGuard(reader_key("s"), item, position, others)))


@pytest.mark.parametrize("kept", TABLES)
def test_records_and_position_move_together(kept: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    item = store.run(open_reader("s", {"lsn": 0}))
    assert (item["seq"], item["position"]) == (0, {"lsn": 0})
    won, item = batch(store, log, item, b"1", {"lsn": 10}, phase="copy").run()
    assert won
    assert (item["seq"], item["position"], item["phase"]) == (1, {"lsn": 10}, "copy")
    won, item = batch(store, log, item, b"2", {"lsn": 20}).run()
    assert (item["seq"], item["position"], item["phase"]) == (2, {"lsn": 20}, "copy")
    assert stored(store, log, 0) == [b"1", b"2"]
    assert store.run(open_reader("s", {"lsn": 0}))["position"] == {"lsn": 20}


@pytest.mark.parametrize("kept", TABLES)
def test_another_life_was_first(kept: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    item = store.run(open_reader("s", 0))
    old, new = batch(store, log, item, b"old", 1), batch(store, view(store), item, b"new", 2)
    assert new.run()[0]
    won, item = old.run()
    assert not won, "the batch is thrown away"
    assert item["position"] == 2, "reading goes on from here"
    assert stored(store, log, 0) == [b"new"]


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("when", ["lost", "landed", "late"])
def test_a_missing_answer(kept: str, when: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    item = store.run(open_reader("s", 0))
    steps = batch(store, log, item, b"1", 1).until(Write)
    if when == "landed":
        land(store, steps.call)
    sent = steps.lose()
    won, item = steps.run()
    assert won
    if when == "late":
        land(store, sent)
    assert (item["seq"], item["position"]) == (1, 1)
    assert stored(store, log, 0) == [b"1"]
    assert store.table.get(reader_key("s"))["seq"] == 1


def test_a_late_batch_of_a_dead_life_lands_whole_or_not_at_all() -> None:
    store, _ = simulated()
    log = new_log(store)
    item = store.run(open_reader("s", 0))
    dead = batch(store, log, item, b"dead", 1).until(Write).call
    assert isinstance(dead, Write)
    won, _ = batch(store, view(store), item, b"alive", 1).run()
    assert won
    land(store, dead)
    assert stored(store, log, 0) == [b"alive"]


def test_two_who_open_a_source_for_the_first_time() -> None:
    store, _ = simulated()
    one, two = (Driven(store, open_reader("s", n)) for n in (1, 2))
    while not (one.done and two.done):
        for steps in (one, two):
            if not steps.done:
                steps.step()
    assert one.run()["position"] == two.run()["position"]
