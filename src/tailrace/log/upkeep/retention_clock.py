"""The retention clock: the time by which old records and tombstones go, kept by the topic itself.

    $Upkeep-<topic id>, 1    t, wall: the time that the last upkeep used, and the time of its host's clock then

A host's clock can be days ahead, and retention must not remove fresh records because of it, nor because that host has
appended some.  So the time begins when the topic was made or got its settings.  From there it goes on

- as the clocks of upkeeps do, by at most a day from one upkeep to the next;
- as records follow each other, each no more than a day after the one before;
- while a newer record lies behind a longer gap, at twice the pace of those clocks.

It is never beyond the clock of the host that runs upkeep now.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.coordination import guard
from tailrace.log.catalog import Described, changed_at
from tailrace.log.format.head import Head
from tailrace.log.read.seek import pages_around
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update

DAY_MS = 24 * 3600 * 1000
MAX_STEP_MS = DAY_MS
"""The most milliseconds that the time advances from one upkeep to the next, or from one record to the next."""


def clock_key(topic_id: str) -> Key:
    """The key of the item with a topic's time."""
    return Key(f"$Upkeep-{topic_id}", 1)


def counted(wall: int, since: int, newest: int, last: Item | None) -> int:
    """The topic's time as far as clocks say it: from this host's (`wall`), the last change of the topic's settings
    (`since`), the newest record and what the last upkeep noted (`last`).

    A host clock that jumps, or is ahead from the beginning, moves the topic's time too far by a day at most; from then
    on only the time that passes on that clock counts, and twice while there is a newer record."""
    if last is None:
        return min(wall, max(since, min(newest, since + MAX_STEP_MS)))
    before, then = int(last["t"]), int(last["wall"])
    passed = min(max(wall - then, 0), MAX_STEP_MS)
    ahead = before + min(2 * passed, MAX_STEP_MS)
    return min(wall, max(since, before + passed, min(newest, ahead)))


def reached(time: int, stamps: Iterable[int]) -> int:
    """The time that records bring a time to: each counts if it is no more than a day later than the one before."""
    for stamp in sorted(stamps):
        if stamp > time + MAX_STEP_MS:
            break
        time = max(time, stamp)
    return time


def time_of(log: TopicLog, topic: Described, wall: int) -> Steps[int]:
    """The time by which this upkeep removes records, in milliseconds since 1970; stored for the next upkeep.

    Only one upkeep runs at a time; a note that gets lost makes the next one count from the note before it."""
    head = yield from log.head()
    since = max(topic.created, (yield from changed_at(topic)))
    key = clock_key(log.id)
    last = yield from guard.read(key)
    now = counted(wall, since, max(head.closed_latest, head.own.latest), last)
    now = min(wall, (yield from _witnessed(log, head, now, wall)))
    if last is None:
        yield from guard.attempt(Put(key, {"t": now, "wall": wall}, (Absent(),)))
    else:
        when = (Equals("t", last["t"]), Equals("wall", last["wall"]))
        yield from guard.attempt(Update(key, (Set("t", now), Set("wall", wall)), when))
    return now


def _witnessed(log: TopicLog, head: Head, time: int, wall: int) -> Steps[int]:
    """The time that the topic's records bring a time to, page after page."""
    own = [entry.latest for entry in head.own.entries]
    while time < min(wall, max([head.closed_latest, *own])):
        stamps = list(own)
        before, after = yield from pages_around(log, head, time + MAX_STEP_MS)
        stamps += [before.latest_so_far] if before is not None else []
        stamps += [entry.latest for entry in after.entries] if after is not None else []
        if (later := reached(time, stamps)) == time:
            break
        time = later
    return time
