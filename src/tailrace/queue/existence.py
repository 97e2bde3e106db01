"""Existence: which queues there are, and the item that makes a topic one of them.

$Queue-<topic id>, 0    settings{}
$Queues, bucket         names{name: topic id}: for listing
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import BadName, nearest
from tailrace.log import catalog
from tailrace.log.format import head as heads
from tailrace.log.topic_log import TopicLog
from tailrace.queue.settings import Settings, as_stored, queue_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Check, Item, Put, Set, Update


def unknown(name: str) -> Steps[str]:
    """What is said of a queue that is not there."""
    names = yield from catalog.listing("$Queues")
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"there is no queue {name!r}{hint}; a push, or `tailrace queue create {name}`, makes it"


def check_own(log: TopicLog) -> Steps[None]:
    """Refuse a topic of others as a queue; one without records may be a queue that another process is just making."""
    head = yield from log.head()
    if any(head.next.values()) and (yield from guard.read(queue_key(log.id))) is None:
        raise BadName(
            f"a queue cannot be called {log.name!r} here: the topic {log.name!r} exists and is no queue; its records "
            "would be handled as messages, and kept until then, whatever its retention; choose another name"
        )


def settle(log: TopicLog, wanted: Settings) -> Steps[Item]:
    """The queue's item; the first process that asks makes it, with its place on the listing."""
    key, bucket = queue_key(log.id), catalog.bucket_key("$Queues", log.name)
    while (item := (yield from guard.read(key))) is None:
        yield from log.head()  # raises if the topic was deleted meanwhile
        listed: Action = Update(bucket, (Set(("names", log.name), log.id),))
        if (yield from guard.read(bucket)) is None:
            listed = Put(bucket, {"names": {log.name: log.id}}, (Absent(),))
        new = Put(key, {"settings": as_stored(wanted)}, (Absent(),))
        yield from guard.attempt(new, listed, Check(heads.head_key(log.id)))
    return item


def change(topic_id: str, wanted: Settings) -> Steps[None]:
    """Store other settings."""
    made = as_stored(wanted)

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None or item["settings"] == made:
            return None
        return (Update(queue_key(topic_id), (Set("settings", made),)),)

    yield from guard.settle(queue_key(topic_id), plan)
