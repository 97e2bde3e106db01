"""A home with a thousand topics, and a scan over many records: pages stay quick."""

from __future__ import annotations

import time
from pathlib import Path

from tailrace.home import Home
from tailrace.queue.dead_letters import DeadNumbers
from tests.console.serving import running
from tests.console.web.conftest import visitor

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
