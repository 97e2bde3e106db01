"""Deletion of a queue: its topic, its dead letters and its settings go in one transaction, so the queue is gone at
once.

DELETE  remove $Queue-<topic id>, its place on $Queues, the topic and the topic of dead letters; put a grave for each

What the two topics and the queue's shards held is removed afterwards, from the graves (see log.catalog).  If the
process is killed in between, the graves remain, and the next deletion, or upkeep, goes on with them.  Every write that
gives a queue a new item checks that $Queue-<topic id> is there, so a worker that does not know of the deletion yet
leaves nothing behind.
"""

from __future__ import annotations

import secrets

from tailrace.coordination import guard
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.groups import group as groups
from tailrace.queue import dead_letters
from tailrace.queue.settings import queue_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Delete, Equals, Remove, Update


def delete(queue: Described) -> Steps[None]:
    """Delete a queue with everything that belongs to it."""
    graves = secrets.randbits(62), secrets.randbits(62)
    while (now := (yield from catalog.find(queue.name))) is not None and now.id == queue.id:
        letters = yield from dead_letters.own_topic(queue.name)
        actions = [*catalog.removal(now, graves[0], shards=now.partitions), *(yield from _unlisting(now))]
        actions += catalog.removal(letters, graves[1]) if letters is not None else ()
        yield from guard.attempt(Delete(queue_key(queue.id)), *actions)
    yield from finish()


def finish() -> Steps[int]:
    """Remove what deleted queues and topics have left behind; returns the number of topics."""
    return (yield from groups.purge())


def _unlisting(queue: Described) -> Steps[list[Action]]:
    bucket, name = catalog.bucket_key("$Queues", queue.name), ("names", queue.name)
    item = yield from guard.read(bucket)
    if item is None or item["names"].get(queue.name) != queue.id:
        return []
    return [Update(bucket, (Remove(name),), (Equals(name, queue.id),))]
