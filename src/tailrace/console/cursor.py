"""Cursors: a place in every partition of a topic, as text: "0:17,1:3" is offset 17 of partition 0 and 3 of partition 1.

In place of a cursor a client may give a position: earliest, latest, an offset (of one partition), a time, how long ago.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tailrace.errors import BadInput, OutOfRange
from tailrace.log.groups.group import offsets
from tailrace.log.topic import Position, Topic
from tailrace.storage.calls import Steps

LARGEST = 2**62
"""No offset reaches this number."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CURSOR = re.compile(r"\d{1,19}:\d{1,19}(,\d{1,19}:\d{1,19})*\Z", re.ASCII)


def cursor_of(positions: Mapping[int, int]) -> str:
    """Return positions as a cursor."""
    return ",".join(f"{q}:{at}" for q, at in sorted(positions.items()))


def is_cursor(text: str) -> bool:
    """Whether a text is a cursor."""
    return _CURSOR.match(text) is not None


def parsed(text: str) -> dict[int, int]:
    """Return the positions of a cursor; raise if it names a partition twice or an offset beyond any end."""
    found: dict[int, int] = {}
    for part in text.split(","):
        q, _, at = part.partition(":")
        if int(q) in found:
            raise BadInput(f"the cursor names partition {q} twice")
        if int(at) >= LARGEST:
            raise OutOfRange(f"offset {at} of partition {q} is beyond any end")
        found[int(q)] = int(at)
    return found


def by_partition(what: str, given: Mapping[str, int]) -> dict[int, int]:
    """Return offsets by partition number; in JSON the numbers are text.  Raise `BadInput` for any other content."""
    for q, at in given.items():
        if not (q.isascii() and q.isdecimal() and len(q) < 5 and 0 <= at < LARGEST):
            raise BadInput(f'{what} has partitions and their next offsets, as in {{"0": 17}}, not {{{q[:40]!r}: {at}}}')
    return {int(q): at for q, at in given.items()}


def position_of(text: str, now: datetime | None = None) -> Position:
    """Return the position that a text names: earliest, latest, an offset, a time, or how long ago."""
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.isascii() and text.isdecimal():
        if len(text) > 19 or int(text) >= LARGEST:
            raise OutOfRange(f"offset {text[:40]} is beyond any end")
        return int(text)
    if found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", text, re.ASCII):
        try:
            return (now or datetime.now(UTC)) - timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
        except OverflowError:
            return "earliest"
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"{text[:60]!r} is no place in a topic; there are: earliest, latest, an offset, a time "
            "(2026-01-31T12:00:00Z), how long ago (15m, 2h, 7d), a cursor (0:17,1:3)"
        ) from None
    if when.tzinfo is None:
        raise BadInput(f"the time {text!r} has no time zone; add Z for UTC (in a URL + is %2B)")
    return max(when, datetime(1970, 1, 1, tzinfo=UTC)) if when.year > 1 else datetime(1970, 1, 1, tzinfo=UTC)


def start_at(topic: Topic, partition: int | None, text: str) -> Steps[dict[int, int]]:
    """Return the offsets that a position or cursor stands for now, in all partitions or one.  Raise `OutOfRange` for an
    offset beyond its partition's end."""
    head = yield from topic.log.head()
    known = range(head.partitions)
    if partition is not None:
        topic._check_partition(partition)
    wanted = known if partition is None else [partition]
    if not is_cursor(text):
        position = position_of(text)
        if isinstance(position, int) and partition is None and head.partitions > 1:
            raise BadInput(
                f"an offset is of one partition, and {topic.name!r} has {head.partitions}: say which with "
                "partition=N, or give a cursor (0:17,1:3)"
            )
        found = yield from offsets(topic.log, wanted, position)
    else:
        given = parsed(text)
        for q in given:
            topic._check_partition(q)
        found = {**{q: head.floor[q] for q in wanted}, **{q: at for q, at in given.items() if q in wanted}}
    for q, at in found.items():
        if at > head.next[q]:
            raise OutOfRange(
                f"offset {at} of partition {q} of {topic.name!r} is beyond its end, {head.next[q]}",
                floor=head.floor[q], end=head.next[q],
            )  # fmt: skip
    return found
