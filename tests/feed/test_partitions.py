"""An index with several partitions: streams by hash, one feed of all, checkpoints for each; and its repair."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import BadInput, BadSetting, UnknownPartition
from tailrace.events import Event
from tailrace.feed.validation import rebuild
from tailrace.home import Home
from tests.feed.test_feed import ordered


def append(home: Home, turns: range) -> None:
    for turn in turns:
        for n in range(10):
            home.events().stream(f"S-{n}").append([Event("x", b"%d" % turn)])


def test_the_feed_reads_all_partitions_and_goes_on_in_each(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        append(home, range(1))
        events.create_index(4)
        feed = events.feed()
        events.catch_up()
        first = list(feed)
        assert ordered(first) == {f"S-{n}": [0] for n in range(10)}
        assert len({event.partition for event in first}) > 1
        assert len(feed.positions) == 4
        append(home, range(1, 3))
        events.catch_up()
        again = list(events.feed(feed.positions))
        assert ordered(again) == {f"S-{n}": [1, 2] for n in range(10)}
        one = [event for q in range(4) for event in events.feed(partition=q)]
        assert ordered(one) == {f"S-{n}": [0, 1, 2] for n in range(10)}
        assert {event.stream: event.partition for event in one} == {e.stream: e.partition for e in first}
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        assert len(events.index_status().partitions) == 4
        assert events.validate_index().ok
        assert rebuild(home.store, all=True) == 30
        assert events.validate_index().ok
        assert ordered(list(events.feed(feed.positions))) == {f"S-{n}": [0, 1, 2] for n in range(10)}


def test_what_cannot_be(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        for wrong in (0, 129, True, "4"):
            with pytest.raises(BadSetting, match="1 to 128 partitions"):
                events.create_index(wrong)  # type: ignore[arg-type]
        events.create_index(3)
        events.create_index(3)
        with pytest.raises(BadSetting, match="with 3 partitions, not 2"):
            events.create_index(2)
        for given in (17, [1, 2], "x"):
            with pytest.raises(BadInput, match="3 checkpoints"):
                events.feed(given)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="whole number"):
            events.feed([0, 0, -1])
        with pytest.raises(UnknownPartition):
            events.feed(partition=3)
