"""The fetcher: reads the messages of a consumer's shards and replays from the log, before they are emitted.

A shard whose next message is damaged waits until an operator has restored the bytes or quarantined them; the other
shards go on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from tailrace.errors import Damaged
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.topic_log import TopicLog
from tailrace.queue.desk import Desk, Desks
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Key

_log = logging.getLogger("tailrace")
FETCH_BYTES = 4 * 1024 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of messages that wait in a consumer for a handler; beyond that, it reads only shards of which it has none."""
DAMAGE_SECONDS = 5.0
"""Seconds between attempts to read a shard whose next message is damaged."""


class Fetcher:
    """Reads messages onto desks that have room: one reader for all shards, and one for each replay."""

    def __init__(self, log: TopicLog, desks: Desks, batch_size: int) -> None:
        self._log, self._desks, self._batch_size = log, desks, batch_size
        self._reader = Reader(log, {}, from_floor=True, passed=0)
        self._replays: dict[Key, Reader] = {}
        self._damaged: dict[Key, tuple[int, float]] = {}
        """At which message each damaged shard, or replay, waits, and when to read it again."""
        self.stuck = False
        """Whether the last look found no messages but those behind a growth that the group has not passed."""

    def pass_growth(self, passed: int) -> None:
        """Let the reader go on past the first `passed` growths of the queue, since the whole group has passed them."""
        self._reader.passed = passed

    @property
    def waits(self) -> bool:
        """Whether there are messages behind a growth of the queue that the group has not passed."""
        return self._reader.waits

    def fetch(self) -> Steps[bool]:
        """Read once for all desks that have room; returns whether there were any messages."""
        with self._desks.lock:
            full = self._desks.waiting_bytes(MOST_BYTES) >= MOST_BYTES
            wanting = {
                key: desk
                for key, desk in self._desks.items()
                if not (desk.leaving or desk.shard.is_paused or len(desk.fetched) >= self._batch_size)
                and not (full and desk.size)
            }
            live = {key: desk for key, desk in wanting.items() if desk.until is None}
            self._forget({desk.shard.key for desk in self._desks.values()})
        found = self.stuck = False
        if live:
            found = yield from self._poll(self._reader, live)
            self.stuck = self._reader.waits and not found
        for key, desk in wanting.items():
            if desk.until is not None and desk.read < desk.until:
                reader = self._replays.setdefault(key, Reader(self._log, {}, from_floor=True))
                found = (yield from self._poll(reader, {desk.partition: desk})) or found
        return found

    def _forget(self, there: Collection[Key]) -> None:
        """Drop what is kept of shards and replays that are finished or belong to another consumer."""
        self._replays = {key: reader for key, reader in self._replays.items() if key in there}
        self._damaged = {key: waits for key, waits in self._damaged.items() if key in there}

    def _poll(self, reader: Reader, desks: Mapping[int, Desk]) -> Steps[bool]:
        now = yield from calls.now()
        left = {q: desk for q, desk in desks.items() if self._damaged.get(desk.shard.key, (0, now))[1] <= now}
        found = False
        while left:
            try:
                return (yield from self._read(reader, left, FETCH_BYTES)) or found
            except Damaged as error:
                if not (bad := {lost.partition for lost in error.lost} & left.keys()):
                    raise
                for q in bad:
                    found = (yield from self._read_to_damage(reader, left.pop(q), now)) or found
        return found

    def _read_to_damage(self, reader: Reader, desk: Desk, now: float) -> Steps[bool]:
        """Read the messages that a shard has before its damage; if there are none, let the shard wait."""
        key = desk.shard.key
        try:
            return (yield from self._read(reader, {desk.partition: desk}, 1))
        except Damaged as error:
            if self._damaged.get(key, (-1, now))[0] != desk.read:
                where = desk.partition, desk.read
                _log.error("queue %s: shard %d waits at message %d, others go on: %s", self._log.name, *where, error)
            self._damaged[key] = desk.read, now + DAMAGE_SECONDS
            return False

    def _read(self, reader: Reader, desks: Mapping[int, Desk], most_bytes: int) -> Steps[bool]:
        reader.positions = {q: desk.read for q, desk in desks.items()}
        reader.until = {q: desk.stop for q, desk in desks.items()}
        fetched: list[Fetched] = yield from reader.poll(most_bytes, self._batch_size * len(desks))
        with self._desks.lock:
            for one in fetched:
                desks[one.partition].take_in(self._log.name, one)
            for q, desk in desks.items():
                desk.pass_to(reader.positions[q])
        return bool(fetched)
