"""Existence of queues: the item that makes a topic a queue, and the listing of all queues.

$Queue-<topic id>, 0    settings{}
$Queues, bucket         names{name: topic id}: for listing
"""

from __future__ import annotations

from typing import Any

from tailrace.coordination import guard
from tailrace.errors import BadName, nearest
from tailrace.log import catalog
from tailrace.log.format import head as heads
from tailrace.log.topic_log import TopicLog
from tailrace.queue.settings import Settings, as_stored, deleted, queue_key, settings, stored_settings
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Check, Equals, Item, Put, Set, Update


def unknown(name: str) -> Steps[str]:
    """Return the error message for a queue that is not there, with the nearest name as a hint."""
    names = yield from catalog.listing("$Queues")
    near = nearest(name, names)
    hint = f" (did you mean {near!r}?)" if near else ""
    return f"there is no queue {name!r}{hint}; `tailrace queue create {name}` makes it, and so does a push by default"


def check_own(log: TopicLog) -> Steps[None]:
    """Refuse to make a queue of a topic that is not one and has records.  A topic without records passes: another
    process may be making it a queue right now."""
    head = yield from log.head()
    if any(head.next.values()) and (yield from guard.read(queue_key(log.id))) is None:
        raise BadName(
            f"a queue cannot be called {log.name!r} here: the topic {log.name!r} exists and is no queue; its records "
            "would be handled as messages, and kept until then, whatever its retention; choose another name"
        )


def settle(log: TopicLog, wanted: Settings) -> Steps[Item]:
    """Return the queue's item.  The first process that asks creates it, with the queue's entry in the listing."""
    key, bucket = queue_key(log.id), catalog.bucket_key("$Queues", log.name)
    while (item := (yield from guard.read(key))) is None:
        yield from log.head()  # raises if the topic was deleted meanwhile
        listed: Action = Update(bucket, (Set(("names", log.name), log.id),))
        if (yield from guard.read(bucket)) is None:
            listed = Put(bucket, {"names": {log.name: log.id}}, (Absent(),))
        new = Put(key, {"settings": as_stored(wanted)}, (Absent(),))
        yield from guard.attempt(new, listed, Check(heads.head_key(log.id)))
    return item


def change(topic_id: str, given: dict[str, Any]) -> Steps[Settings]:
    """Change the settings in the queue's item that are named, and return all of them; `UnknownQueue` if the queue was
    deleted."""
    made = Settings()

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        nonlocal made
        if item is None:
            raise deleted()
        made = settings(given, stored_settings(item))
        if item["settings"] == as_stored(made):
            return None
        same = (Equals("settings", item["settings"]),)
        return (Update(queue_key(topic_id), (Set("settings", as_stored(made)),), same),)

    yield from guard.settle(queue_key(topic_id), plan)
    return made
