"""A topic that is deleted while a group reads it: whatever is under way, wherever it is, the error is `UnknownTopic`.

The deletion has several steps, and so has what members do; here every pair of places where one meets the other is
tried, instead of waiting for two threads to meet there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

import pytest

from tailrace.errors import TailraceError, UnknownTopic
from tailrace.log import catalog
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.groups.member import PartitionMember
from tailrace.log.groups.prefetch import ConsumerSettings, Inbox
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps, Store
from tests.log.driving import Driven, simulated


@dataclass
class Scene:
    """A group of a topic with a member who holds its partitions."""

    store: Store
    group: Group
    member: PartitionMember


def scene() -> Scene:
    store, _ = simulated()
    described = store.run(catalog.create("orders", 2, {}, 0))
    group = Group("billing", TopicLog("orders", described.id), 2)
    member = PartitionMember(group, 7, wall=lambda: 0.0)
    store.run(member.join("earliest"))
    store.run(member.balance())
    return Scene(store, group, member)


def deletion(here: Scene) -> Steps[None]:
    yield from catalog.delete("orders")
    yield from catalog.purge()
    yield from groups.forget(here.group.log.id)


def keep(here: Scene) -> Steps[float]:
    return Inbox(here.member, ConsumerSettings(), Event(), Event(), Event()).keep()


DOINGS: dict[str, Callable[[Scene], Steps[object]]] = {
    "join": lambda here: PartitionMember(here.group, 8, wall=lambda: 0.0).join("earliest"),
    "join by name": lambda here: PartitionMember(here.group, 8, name="ann", wall=lambda: 0.0).join("earliest"),
    "balance": lambda here: here.member.balance(),
    "balance anew": lambda here: PartitionMember(here.group, 8, wall=lambda: 0.0).balance(),
    "keep": keep,
    "reset": lambda here: groups.reset(here.group, 0, force=True),
    "delete": lambda here: groups.delete(here.group, force=True),
    "shards": lambda here: groups.all_shards(here.group),
}


def meetings(doing: Callable[[Scene], Steps[object]]) -> Iterator[tuple[int, int, Driven]]:
    """It is done up to some step, the topic's deletion too, and then it ends; for all pairs of steps."""
    for before in range(60):
        for meanwhile in range(1, 60):
            here = scene()
            work = Driven(here.store, doing(here))
            for _ in range(before):
                if not work.done:
                    work.step()
            if work.done:
                return
            gone = Driven(here.store, deletion(here))
            for _ in range(meanwhile):
                if not gone.done:
                    gone.step()
            for _ in range(200):
                if not work.done:
                    work.step()
            yield before, meanwhile, work
            if gone.done:
                break


@pytest.mark.parametrize("name", DOINGS)
def test_the_topic_is_unknown_not_the_group(name: str) -> None:
    met = 0
    for before, meanwhile, work in meetings(DOINGS[name]):
        assert work.done, (before, meanwhile, work.call)
        assert work.error is None or isinstance(work.error, UnknownTopic), (before, meanwhile, repr(work.error))
        met += isinstance(work.error, TailraceError)
    assert met or name in ("delete", "shards")
