"""Tails: one look for all followers, as often as is allowed, and none while nobody waits."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.console.tails import Tails
from tailrace.errors import UnknownTopic
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tests.log.driving import simulated_home


class CountedLog(TopicLog):
    """A log that counts how often its head is read."""

    looks = 0

    def head(self) -> Steps[object]:  # type: ignore[override]
        """The head, counted."""
        CountedLog.looks += 1
        return super().head()


@pytest.fixture
def home() -> Home:
    """A home whose table does not say that others have written, as in the cloud."""
    return simulated_home("objects")[0]


def elsewhere(home: Home) -> Topic:
    """The topic as another process has it: its appends are not told here."""
    topic = home.topic("t", partitions=1)
    topic.log.on_commit = lambda: None
    return topic


def test_many_followers_cost_one_look_for_each_interval(home: Home) -> None:
    topic = elsewhere(home)
    log = CountedLog("t", topic.id)
    CountedLog.looks = 0

    async def follow() -> None:
        tails = Tails(home.store, 0.1)
        async with tails.follow(log) as first, tails.follow(log) as second:
            assert first is second
            assert not any(await asyncio.gather(*(first.more({0: 0}, 0.55, every=True) for _ in range(50))))
            assert 1 <= CountedLog.looks <= 7
            waiting = [asyncio.create_task(first.more({0: 0}, 30, every=True)) for _ in range(50)]
            await asyncio.to_thread(topic.append, [(None, b"x")])
            assert all(await asyncio.gather(*waiting))
            page = first.page_at({0: 0})
            assert page is not None
            assert (page.rows, page.next) == (1, {0: 1})
        CountedLog.looks = 0
        await asyncio.sleep(0.3)
        assert CountedLog.looks == 0

    asyncio.run(follow())


def test_a_topic_that_is_deleted_ends_the_waiting(home: Home) -> None:
    topic = elsewhere(home)

    async def follow() -> None:
        async with Tails(home.store, 0.05).follow(TopicLog("t", topic.id)) as tail:
            waiting = asyncio.create_task(tail.more({0: 0}, 30, every=True))
            await asyncio.to_thread(home.delete_topic, "t")
            with pytest.raises(UnknownTopic):
                await waiting

    asyncio.run(follow())
