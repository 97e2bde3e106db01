"""Explanation of one message: when it was pushed, which consumers had it, which attempts failed, and how it ended.

The log says when it was pushed, the diary which consumers owned its shard and which attempts failed, the window and the
dead letters how it ended.  The explanation lists as "not recorded" what none of them has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from tailrace.errors import OutOfRange
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.record import EPOCH, Record
from tailrace.log.topic import Topic
from tailrace.queue import dead_letters, diary
from tailrace.queue.dead_letters import DeadLetter
from tailrace.queue.diary import Failure, Owner
from tailrace.queue.envelope import PUSHER, pushed_ms
from tailrace.queue.window import Window
from tailrace.storage.tables import Item


class Moment(NamedTuple):
    """Something that happened to a message at `at`; with `until`, at some time between the two."""

    at: datetime
    what: str
    until: datetime | None = None

    def __str__(self) -> str:
        return f"{_shown(self.at)}{f' to {_shown(self.until)}' if self.until is not None else ''}  {self.what}"


@dataclass(frozen=True, slots=True)
class Story:
    """One message's life, as far as it is stored."""

    shard: int
    offset: int
    shard_key: bytes | None
    pushed: datetime
    state: str
    """"waiting", "running", "failing", "acked", "dead", "purged"."""
    attempts: int
    """Attempts that failed, or whose consumer disappeared."""
    owner: str
    """The consumer that owns its shard now; empty if there is none."""
    reason: str = ""
    """Why it is a dead letter; empty if it is none."""
    moments: tuple[Moment, ...] = ()
    """What happened to it, oldest first."""
    not_recorded: tuple[str, ...] = ()
    """The parts of the life that are not stored."""

    def __str__(self) -> str:
        key = "" if self.shard_key is None else f", key {self.shard_key.decode('utf-8', 'replace')!r}"
        failed = f", after {self.attempts} attempt{'s' * (self.attempts > 1)} that failed" if self.attempts else ""
        lines = [f"shard {self.shard}, offset {self.offset}{key}: {self.state}{failed}"]
        lines += map(str, self.moments)
        lines += [f"not recorded: {what}" for what in self.not_recorded]
        return "\n".join(lines)


def story(topic: Topic, group: Group, shard: int, offset: int) -> Story:
    """Put together what is stored about a message; raises `OutOfRange` if the log does not hold it."""
    record = _record(topic, shard, offset)
    run = topic.store.run
    item = run(groups.all_shards(group))[shard]
    w = Window.of(item["position"], item.get("queue"))
    letter = run(dead_letters.find(topic.name, shard, offset)) if w.dead and w.is_done(offset) else None
    holder = run(groups.members(group)).get(item["owner"])
    owner = str(holder["name"]) if holder is not None else ""
    life = _Life(offset, run(diary.owners(topic.id, shard)), run(diary.failures(topic.id, shard, offset)), w, item)
    life.begin(record)
    life.follow(letter)
    attempts = letter.attempts if letter is not None else max(w.tried(offset), life.known_attempts)
    return Story(
        shard, offset, record.key, life.pushed, life.state(letter, bool(owner)), attempts, owner,
        letter.reason if letter is not None else "", tuple(sorted(life.moments, key=lambda one: one.at)),
        tuple(life.missing),
    )  # fmt: skip


def _record(topic: Topic, shard: int, offset: int) -> Record:
    topic._check_partition(shard)
    floor, end = topic.ends()[shard]
    if not floor <= offset < end:
        there = f"has messages {floor} to {end - 1}, not {offset}" if floor < end else "has no messages"
        raise OutOfRange(f"shard {shard} of {topic.name!r} {there}", floor=floor, end=end)
    record = next(iter(topic.records(shard, offset)), None)
    if record is None or record.offset != offset:
        raise OutOfRange(
            f"message {offset} of shard {shard} of {topic.name!r} is not kept: it was removed, or damaged",
            floor=floor, end=end,
        )  # fmt: skip
    return record


class _Life:
    """Collects the moments of one message from the log, the diary and the window."""

    def __init__(
        self, offset: int, owners: Sequence[Owner], failures: Sequence[Failure], now: Window, item: Item
    ) -> None:
        self.offset, self.owners, self.failures, self.now = offset, owners, failures, now
        self.epoch: int = item["epoch"]
        self.moments: list[Moment] = []
        self.missing: list[str] = []
        self.pushed = self.arrived = EPOCH
        self.known_attempts = 0
        self.purged = False

    def begin(self, record: Record) -> None:
        said = dict(record.headers)
        self.pushed = _time(pushed_ms(record.timestamp, record.headers))
        self.arrived = record.time
        by = f" by {said[PUSHER].decode('utf-8', 'replace')}" if PUSHER in said else ""
        self.moments.append(Moment(self.pushed, f"pushed{by}"))
        if not by:
            self.missing.append("who pushed it; queues opened with home.queue(name, pusher=…) sign their messages")
        if self.pushed != record.time:
            self.moments.append(Moment(record.time, "due: moved into its shard"))

    def follow(self, letter: DeadLetter | None) -> None:
        for one in self.failures:
            again = "of a replay " if one.replayed else ""
            what = f"attempt {one.attempt} {again}by {one.name} failed: {one.error}"
            self.moments.append(Moment(_time(one.at), what))
            self.known_attempts += not one.replayed
        for n, owner in enumerate(self.owners):
            if not owner.window.is_done(self.offset):
                self._under(owner, self.owners[n + 1] if n + 1 < len(self.owners) else None, letter)
        if letter is not None:
            by = f" by {letter.consumer}" if letter.consumer else ""
            self.moments.append(Moment(_time(letter.died), f"put with the dead letters{by}: {letter.reason}"))
        self._say_what_is_missing(letter)

    def _under(self, owner: Owner, following: Owner | None, letter: DeadLetter | None) -> None:
        """Add what happened while the shard had this owner; the next owner's window shows it."""
        after = self.now if following is None else following.window
        gap = (following.epoch if following is not None else self.epoch + 1) > owner.epoch + 1
        start = max(self.arrived, _time(owner.at))
        end = None if following is None else max(start, _time(following.at))
        if after.is_done(self.offset):
            by = f"{owner.name}, or a consumer after it that is not recorded" if gap else owner.name
            if owner.purge:
                self.purged = True
                self.moments.append(Moment(_time(owner.at), "purged"))
            elif letter is None:
                self.moments.append(Moment(start, f"handed to {by}, and acked", self._acked_by(start, end)))
        elif self.offset < after.upto:
            failed = any(one.name == owner.name and not one.replayed for one in self.failures)
            if following is None:
                self.moments.append(Moment(start, f"handed to {owner.name}, which has it since some time after this"))
            else:
                fate = "its shard was taken over" if failed else "it disappeared before an outcome was written"
                self.moments.append(Moment(start, f"handed to {owner.name}; {fate}", end))

    def _acked_by(self, start: datetime, end: datetime | None) -> datetime | None:
        times = [_time(ms) for ms, position in self.now.marks if position > self.offset]
        later = [time for time in times if time >= start]
        return min([*later[:1], *([end] if end is not None else [])], default=None)

    def _say_what_is_missing(self, letter: DeadLetter | None) -> None:
        shown = any("acked" in one.what for one in self.moments)
        if self.now.is_done(self.offset) and not shown and not self.purged and letter is None:
            self.missing.append("who acked it, and when")
        elif shown:
            self.missing.append("the moment of the acknowledgement: it was written between the two times, with others")
        lost = self.now.tried(self.offset) - self.now.taken_over(self.offset) - self.known_attempts
        if lost > 0:
            self.missing.append(f"the error of {lost} failed attempt{'s' * (lost > 1)}")
        if not self.owners or self.owners[0].epoch > 1:
            self.missing.append("consumers that had the shard before the first one above")

    def state(self, letter: DeadLetter | None, held: bool) -> str:
        if letter is not None:
            return "dead"
        if self.now.is_done(self.offset):
            return "purged" if self.purged else "acked"
        if self.offset < self.now.upto and held:
            return "failing" if self.offset in self.now.attempts else "running"
        return "waiting"


def _time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def _shown(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="milliseconds")
