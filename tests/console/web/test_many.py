"""A home with a thousand topics, and a scan over many records: pages stay quick."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tailrace.console.api import streams
from tailrace.console.api.streams import (
    StreamGroupHealth,
    StreamGroupShard,
    StreamShard,
    TableKey,
    TableStream,
    TableSummary,
)
from tailrace.console.web.pages.streams import descent
from tailrace.home import Home
from tailrace.queue.dead_letters import DeadNumbers
from tests.console.serving import running
from tests.console.web.conftest import visitor
from tests.console.web.filled import Person

TOPICS = 1000


def test_a_thousand_topics(home: Home, place: Path) -> None:
    for n in range(TOPICS):
        home.create_topic(f"topic-{n:04}")
    with running(place) as client:
        site = visitor(client)
        site.page("/topics")  # the first look goes through all of them
        started = time.perf_counter()
        text = site.page("/topics")
        page_seconds = time.perf_counter() - started
        assert text.count("/topics/topic-") == 50
        assert f"{TOPICS:,} topics" in text
        assert "topic-0999" in site.page("/topics?q=0999")
        assert len(text) < 100_000
        best = min(page_seconds, *(_timed(lambda: site.page("/topics?sort=-name")) for _ in range(5)))
        assert best < 0.5


def test_ten_thousand_shards(home: Home, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = home.engine()
    engine.bind(Person)
    parents = [None, *(f"s{n // 2}" for n in range(1, 10_000))]
    many = [StreamShard(f"s{n}", parent, n > 5000) for n, parent in enumerate(parents)]
    assert len(descent(many)) == 10_000
    states = [StreamGroupShard(one.id, None, 5, not one.open, 1.0, "", 0, 0.0) for one in many]
    told = TableStream(TableSummary("Person", TableKey("name", "text"), None, ["new"]), "s", many)

    async def describe(call: object) -> TableStream:
        return told

    monkeypatch.setattr(streams, "describe_table", describe)
    monkeypatch.setattr(streams, "group_health", lambda *given: StreamGroupHealth("g", [], 0, 0.0, states))
    with running(place) as client:
        site = visitor(client)
        for path in ("/streams/Person", "/streams/Person/groups/g"):
            text = site.page(path)
            assert len(text) < 200_000
            assert min(_timed(lambda path=path: site.page(path)) for _ in range(5)) < 0.5  # type: ignore[misc]
        assert "And 9,500 more shards" in site.page("/streams/Person")
        assert "s9999" in site.page("/streams/Person/groups/g?q=s9999")


def _timed(act: object) -> float:
    started = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - started


def test_a_search_ends_and_goes_on_where_it_was(home: Home, place: Path) -> None:
    topic = home.topic("many", partitions=3)
    for first in range(0, 60_000, 20_000):
        topic.append([(b"%d" % n, b'{"n": %d}' % n) for n in range(first, first + 20_000)])
    with running(place) as client:
        site, path, found, rounds = (
            visitor(client),
            "/topics/many/records?q=77&limit=500",
            set(),
            0,
        )
        while path:
            text = site.page(path)
            rounds += 1
            found |= {part.partition('"')[0] for part in text.split('href="/topics/many/records/')[1:]}
            after = text.partition("offset")[2].partition('href="')[2].partition('"')[0]
            path = after.replace("&amp;", "&") if "Go on from here" in text else ""
        expected = {f"{r.partition}/{r.offset}" for r in topic.records() if b"77" in r.value}
        assert found == expected
        assert rounds > 1


def test_dead_letters_behind_a_thousand_that_were_put_back(home: Home, place: Path) -> None:
    mails = home.queue("mails")
    mails.make(1, attempts=1)
    mails.push_many([f"message {n:04}" for n in range(1010)])

    def fail(envelope: object) -> None:
        raise ValueError("no such address")

    with mails.tail(fail):
        assert mails.drain(60)
    assert mails.dead_numbers() == DeadNumbers(0, 1010, 1010)
    assert mails.requeue(*range(1005)) == 1005
    assert [one.number for one in mails.dead(1008)] == [1008, 1009]
    with running(place) as client:
        site = visitor(client)
        assert "Queue mails has 5 dead letters" in site.page("/")
        newest = site.page("/queues/mails/dead")
        assert ">1,009<" in newest
        assert "/queues/mails/requeue" in newest
        assert 'dead?before=10">Earlier dead letters' in newest
        assert ">9<" in site.page("/queues/mails/dead?before=10")
        told = client.get("queues/mails/dead?limit=2&before=1008").json
        assert ([one["number"] for one in told["dead"]], told["left"]) == ([1006, 1007], 5)
        assert client.get("queues/mails/dead?after=1007").json["next"] is None
        assert client.get("queues/mails/dead?after=7&before=9").status == 400
