"""The diary of a queue: which consumer owned each shard and when, and why attempts failed.  Only `explain` reads it.

    $Owners-<topic id>-<shard>, epoch                          name, at, position, queue{}, purge; of a purge: id
    $Failures-<topic id>-<shard>, offset * 1024 + attempt      name, at, error; a replay's attempts count from 512

An owner's entry has the window as that owner found it.  So the windows of two successive owners show exactly which
messages the first one was handed and which it finished, and a message without a failure costs no write.  A consumer
writes its entries after the window; if it dies in between, they are missing, and `explain` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.errors import StorageError
from tailrace.queue.desk import Desk
from tailrace.queue.lanes import Entry
from tailrace.queue.settings import queue_key
from tailrace.queue.window import Window
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Check, Delete, Item, Key, Put, Regardless

ATTEMPTS, OF_REPLAY = 1024, 512
"""Range keys reserved for the attempts of one message, and the number at which those of its replays begin."""
MOST_ERROR, MOST_OWNERS, MOST_PENDING, AT_ONCE = 1000, 1000, 2000, 50
"""At most: characters of an error, kept owners of a shard, entries that wait to be written, entries in one write."""


def clean(reason: str) -> str:
    """Return the reason of a failed attempt as UTF-8 can store it: file names that are not UTF-8 bring lone
    surrogates."""
    return str(reason).encode("utf-8", "backslashreplace").decode()


class Owner(NamedTuple):
    """The consumer that took a shard, when (in ms), and the window it found.  With `purge`, the entry stands for a
    purge instead, which dropped what the window left open."""

    epoch: int
    name: str
    at: int
    window: Window
    purge: bool


class Failure(NamedTuple):
    """An attempt that failed: in which consumer, when (in ms), and why."""

    attempt: int
    name: str
    at: int
    error: str
    replayed: bool


class Diary:
    """One consumer's entries; `write` stores them."""

    def __init__(self, topic_id: str, name: str, wall: Callable[[], float]) -> None:
        self._topic_id, self._name, self._wall = topic_id, name, wall
        self._pending: list[Put] = []

    def took(self, desk: Desk) -> None:
        """Note that this consumer has taken the desk's shard."""
        found, epoch = desk.shard.stored, desk.shard.held.epoch
        self._pending.append(_owner(self._topic_id, desk.partition, epoch, self._name, self._now(), found, purge=False))

    def failed(self, entry: Entry, error: str) -> None:
        """Note a failed attempt; `entry.tries` must already count it."""
        attempt = min(entry.tries, OF_REPLAY - 1) + (OF_REPLAY if entry.replayed else 0)
        key = Key(_failures(self._topic_id, entry.partition), entry.offset * ATTEMPTS + attempt)
        item = {"name": self._name, "at": self._now(), "error": error[:MOST_ERROR]}
        self._pending.append(Put(key, item, (Regardless(),)))

    def _now(self) -> int:
        return int(self._wall() * 1000)

    def write(self) -> Steps[None]:
        """Store the noted entries.  Drops those that the storage does not take, so that no message waits for the
        diary."""
        del self._pending[:-MOST_PENDING]
        while self._pending:
            some = {put.key: put for put in self._pending[:AT_ONCE]}
            del self._pending[:AT_ONCE]
            try:
                yield from guard.attempt(*some.values(), Check(queue_key(self._topic_id)))
            except StorageError:
                return


def purged(topic_id: str, shard: int, epoch: int, now: int, found: Window, id: str) -> tuple[Put, Check]:
    """Return the writes that note a purge, in the transaction that drops a shard's open messages; `found` is the window
    before it, and `id` tells this purge from others."""
    noted = _owner(topic_id, shard, epoch, "", now, found, purge=True)
    return Put(noted.key, {**noted.item, "id": id}, noted.when), Check(queue_key(topic_id))


def owners(topic_id: str, shard: int) -> Steps[list[Owner]]:
    """Return the recorded owners of a shard, oldest first."""
    items = yield from guard.read_all(_owners(topic_id, shard))
    return [
        Owner(item["i"], item["name"], item["at"], Window.of(item["position"], item["queue"]), item["purge"])
        for item in items
    ]


def failures(topic_id: str, shard: int, offset: int) -> Steps[list[Failure]]:
    """Return the recorded failed attempts of a message."""
    low = offset * ATTEMPTS
    items = yield from guard.read_all(_failures(topic_id, shard), low, low + ATTEMPTS - 1)
    found = [(item["i"] - low, item) for item in items]
    return [Failure(n % OF_REPLAY, item["name"], item["at"], item["error"], n >= OF_REPLAY) for n, item in found]


def sweep(topic_id: str, floors: dict[int, int]) -> Steps[int]:
    """Remove the entries about messages below each shard's floor; returns how many."""
    removed = 0
    for q, floor in floors.items():
        gone = [Key(_failures(topic_id, q), item["i"]) for item in (yield from _below(topic_id, q, floor))]
        known = yield from owners(topic_id, q)
        over = [n for n in range(len(known) - 1) if known[n + 1].window.position <= floor]
        first = max(len(over), len(known) - MOST_OWNERS)
        gone += [Key(_owners(topic_id, q), one.epoch) for one in known[:first]]
        for start in range(0, len(gone), AT_ONCE):
            yield from guard.attempt(*(Delete(key) for key in gone[start : start + AT_ONCE]))
        removed += len(gone)
    return removed


def _below(topic_id: str, q: int, floor: int) -> Steps[list[Item]]:
    if not floor:
        return []
    return (yield from guard.read_all(_failures(topic_id, q), 0, min(floor * ATTEMPTS - 1, LAST)))


def _owners(topic_id: str, shard: int) -> str:
    return f"$Owners-{topic_id}-{shard}"


def _failures(topic_id: str, shard: int) -> str:
    return f"$Failures-{topic_id}-{shard}"


def _owner(topic_id: str, shard: int, epoch: int, name: str, at: int, found: Window, *, purge: bool) -> Put:
    item = {"name": name, "at": at, "position": found.position, "queue": found.stored(0), "purge": purge}
    return Put(Key(_owners(topic_id, shard), epoch), item, (Regardless(),))
