"""The retention clock: the time by which old records and tombstones go, kept by the topic itself.

    $Upkeep-<topic id>, 1    t, wall: the time that the last upkeep used, and the time of its host's clock then

A host's clock can be days ahead, and retention must not remove fresh records because of it.  So the topic's time is the
latest that it has seen: its newest record's, its creation's, its last change of settings'.  From there it advances with
the clocks of the hosts that run upkeep, by at most a day from one upkeep to the next, and never beyond the present
host's clock.
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.log.catalog import Described, changed_at
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update

DAY_MS = 24 * 3600 * 1000
MAX_STEP_MS = DAY_MS
"""The most milliseconds that the time advances from one upkeep to the next, if only a host's clock says so."""


def clock_key(topic_id: str) -> Key:
    """The key of the item with a topic's time."""
    return Key(f"$Upkeep-{topic_id}", 1)


def counted(wall: int, seen: int, last: Item | None) -> int:
    """The topic's time, by which retention decides, derived from this host's clock (`wall`), the latest timestamp in
    the topic (`seen`) and what the last upkeep noted (`last`).

    A host clock that jumps, or is ahead from the beginning, moves the topic's time too far by a day at most; from then
    on only the time that passes on that clock counts."""
    if last is None:
        return min(wall, seen)
    before, then = int(last["t"]), int(last["wall"])
    passed = min(max(wall - then, 0), MAX_STEP_MS)
    return min(wall, max(seen, before + passed))


def time_of(log: TopicLog, topic: Described, wall: int) -> Steps[int]:
    """The time by which this upkeep removes records, in milliseconds since 1970; stored for the next upkeep.

    Only one upkeep runs at a time; a note that gets lost makes the next one count from the note before it."""
    head = yield from log.head()
    seen = max(head.closed_latest, head.own.latest, topic.created, (yield from changed_at(topic)))
    key = clock_key(log.id)
    last = yield from guard.read(key)
    now = counted(wall, seen, last)
    if last is None:
        yield from guard.attempt(Put(key, {"t": now, "wall": wall}, (Absent(),)))
    else:
        when = (Equals("t", last["t"]), Equals("wall", last["wall"]))
        yield from guard.attempt(Update(key, (Set("t", now), Set("wall", wall)), when))
    return now
