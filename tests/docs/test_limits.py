"""Limits as docs/operations/limits.md states them: at each one it works, and just beyond it is refused as it says."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace import errors
from tailrace.adaptors.rows.rows import make_rows
from tailrace.console.jobs import Jobs
from tailrace.errors import BadEvent, BadName, BadRecord, BadSetting, Busy, TailraceError, TooLarge
from tailrace.events import Event
from tailrace.home import Home
from tailrace.log.record import Mode
from tailrace.pipeline.ingest.commit_log import CommitLog, last_message

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


def document(value: str) -> pa.RecordBatch:
    columns = pa.record_batch({"id": pa.array([1]), "v": pa.array([value])})
    return make_rows("t", columns, ["id"], mode=Mode.SYNC)


def test_one_row_of_a_pipeline(home: Home) -> None:
    limit, _ = row("one row")
    assert limit.startswith("none in the commit log")
    log = CommitLog(home, "shop")
    log.begin(0)
    size = 4 * log.topic.settings.max_record_bytes
    assert log.take_in([document("v" * size)], 1)
    (fetched,) = [one for one in log.topic.fetch() if one.data.num_rows]
    assert len(fetched.data.column("data")[0].as_py()["v"]) == size


def test_the_last_message_that_a_reader_is_handed() -> None:
    limit, then = row("the data of the last message that a reader is handed")
    assert "`data` is null" in then
    most = first_number(limit) << 10
    assert len(last_message(document("v" * (most - len('{"id":1,"v":""}'))))["data"]) == most
    assert last_message(document("v" * most))["data"] is None


def test_what_is_remembered_of_one_source(home: Home) -> None:
    limit, then = row("a part of that, compressed")
    assert "TooLarge" in then
    log = CommitLog(home, "shop")
    log.begin({"recopy": []})
    names = [f"public.{n:x}{n * 2654435761 % 2**32:x}" for n in range(first_number(limit.partition("some")[2]) * 3)]
    refused(TooLarge, lambda: log.take_in([document("v")], {"recopy": names}))
    assert log.position == {"recopy": []}


def test_jobs_that_run_at_the_same_time() -> None:
    limit, then = row("jobs that run at the same time")
    assert "refused" in then
    jobs, over = Jobs(), threading.Event()
    for _ in range(first_number(limit)):
        jobs.start("scrub", lambda job: over.wait(30))
    refused(Busy, lambda: jobs.start("scrub", lambda job: None))
    over.set()
