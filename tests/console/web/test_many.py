"""A home with a thousand topics, and a scan over many records: pages stay quick."""

from __future__ import annotations

import time
from pathlib import Path

from tailrace.home import Home
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
