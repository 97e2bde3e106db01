"""Limits as docs/operations/limits.md states them: at each one it works, and just beyond it is refused as it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import errors
from tailrace.errors import BadEvent, BadName, BadRecord, BadSetting, TailraceError, TooLarge
from tailrace.events import Event
from tailrace.home import Home

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "limits.md").read_text()


def row(what: str) -> tuple[str, str]:
    """What the page says of something: the limit, and what happens there."""
    found = re.search(rf"^\| {re.escape(what)} \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert found is not None, what
    return found[1], found[2]


def first_number(text: str) -> int:
    return int(re.findall(r"\d[\d,]*", text)[0].replace(",", ""))


@pytest.fixture
def home() -> Iterator[Home]:
    with tailrace.open("memory://") as made:
        yield made


def refused(kind: type[TailraceError], call: Callable[[], Any]) -> None:
    with pytest.raises(kind):
        call()


def test_every_error_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", PAGE))
    assert named
    assert {name for name in named if not hasattr(errors, name)} == set()


def test_partitions_of_a_topic(home: Home) -> None:
    limit, then = row("partitions of a topic")
    assert "BadSetting" in then
    assert home.create_topic("most", first_number(limit)).ends().keys() == {*range(first_number(limit))}
    refused(BadSetting, lambda: home.create_topic("more", first_number(limit) + 1))


def test_how_often_a_topic_grows(home: Home) -> None:
    limit, then = row("how often a topic grows")
    assert "refused" in then
    topic = home.create_topic("grown", 1)
    for n in range(first_number(limit)):
        topic.append([(b"k", b"v")])
        topic.grow(n + 2)
    topic.append([(b"k", b"v")])
    refused(TailraceError, lambda: topic.grow(first_number(limit) + 2))


def test_one_record(home: Home) -> None:
    limit, then = row("one record")
    assert "TooLarge" in then
    topic = home.create_topic("records", 1)
    assert topic.settings.max_record_bytes == first_number(limit) << 20
    home.create_topic("largest", 1, max_record_bytes=1 << 30)
    refused(BadSetting, lambda: home.create_topic("larger", 1, max_record_bytes=(1 << 30) + 1))
    refused(TooLarge, lambda: topic.append([(None, bytes((first_number(limit) << 20) + 1))]))


def test_a_transaction_over_topics(home: Home) -> None:
    limit, then = row("a transaction over topics")
    assert "TooLarge" in then
    topics = [home.create_topic(f"t{n}", 1) for n in range(first_number(limit) + 1)]
    with home.transaction() as together:
        for topic in topics[:-1]:
            together.send(b"k", b"v", topic=topic.name)
    assert all(topic.ends() == {0: (0, 1)} for topic in topics[:-1])

    def too_many() -> None:
        with home.transaction() as together:
            for topic in topics:
                together.send(b"k", b"v", topic=topic.name)

    refused(TooLarge, too_many)
    assert topics[0].ends() == {0: (0, 1)}, "nothing is appended"


def test_names(home: Home) -> None:
    limit, then = row("names of topics, groups and producers")
    assert "BadName" in then
    home.create_topic("n" * first_number(limit), 1)
    for name in ("n" * (first_number(limit) + 1), "", "a.b", "ä"):
        refused(BadName, lambda name=name: home.create_topic(name, 1))  # type: ignore[misc]


def test_timestamps(home: Home) -> None:
    limit, then = row("a record's timestamp")
    assert (limit, "BadRecord" in then) == ("1970 to 9999", True)
    topic = home.create_topic("times", 1)
    last = 253_402_300_799_999
    with topic.producer() as out:
        out.send(None, b"first", timestamp=0)
        out.send(None, b"last", timestamp=last)
        refused(BadRecord, lambda: out.send(None, b"", timestamp=-1))
        refused(BadRecord, lambda: out.send(None, b"", timestamp=last + 1))


def test_names_of_streams_and_ids_of_events(home: Home) -> None:
    limit, then = row("a stream's name, an event's id")
    assert "`BadName`, `BadEvent`" in then
    name, id = (int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", limit))
    events = home.events()
    events.stream("S-" + "s" * (name - 2)).append([Event("X", b"", id="i" * id)])
    refused(BadName, lambda: events.stream("S-" + "s" * (name - 1)).append([Event("X", b"")]))
    refused(BadEvent, lambda: events.stream("S-s").append([Event("X", b"", id="i" * (id + 1))]))
