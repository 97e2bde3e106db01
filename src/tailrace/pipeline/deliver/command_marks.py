"""Command marks: how an operator's mark moves past a command, which is in every partition of the commit log.

If an operator moved the mark of one partition past a command, the other partitions would wait at it for ever.  So a
move backwards also moves the other marks back.  A move forwards would skip messages of the other partitions, so an
operator can pass a command only if all marks stand directly before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.rows import namespace_of, ops_of
from tailrace.errors import BadInput, NotReady
from tailrace.log.record import Op
from tailrace.log.topic import Topic
from tailrace.pipeline.deliver.offsets import Mark

if TYPE_CHECKING:  # an operator's machine may have no Spark
    from tailrace.pipeline.deliver.delivery import Branch


def moved(
    topic: Topic, now: Mapping[int, Mark], partition: int, offset: int, namespace: str | None = None
) -> dict[int, Mark]:
    """The new marks of the other partitions that must move with this one; `BadInput` if they cannot."""
    low = now[partition].low
    if offset < low:
        return _back(topic, now, partition, len(commands(topic, partition, offset + 1, low + 1)))
    passed = commands(topic, partition, low + 1, offset + 1, namespace)
    if not passed:
        return {}
    others = {q: mark for q, mark in now.items() if q != partition}
    standing = all(commands(topic, q, mark.resume, mark.resume + 1) for q, mark in others.items())
    if namespace is not None or passed != [low + 1] or offset != low + 1 or not standing:
        raise BadInput(
            f"{partition}:{passed[0]} is a truncate, which is in every partition: it is passed only when all stand "
            f"before it, and alone; mark {partition}:{passed[0] - 1}, and let the writer come to it"
        )
    return {q: Mark(mark.resume) for q, mark in others.items()}


def _back(topic: Topic, now: Mapping[int, Mark], partition: int, count: int) -> dict[int, Mark]:
    """The marks of the other partitions before the same command, `count` commands back.  A partition that was added
    after the command gets a mark before its oldest message."""
    marks, ends = {}, topic.ends()
    for q, mark in now.items() if count else ():
        if q != partition:
            passed = commands(topic, q, 0, mark.low + 1)
            marks[q] = Mark((passed[-count] if len(passed) >= count else ends[q][0]) - 1)
    return marks


def commands(topic: Topic, partition: int, start: int, end: int, namespace: str | None = None) -> list[int]:
    """The offsets of the commands in a range of a partition, of one namespace or of all."""
    floor, next = topic.ends()[partition]
    found: list[int] = []
    for fetched in topic.fetch(partition, max(start, floor)) if max(start, floor) < min(end, next) else ():
        if namespace in (None, namespace_of(fetched.data)):
            command = pc.equal(ops_of(fetched.data), pa.scalar(int(Op.COMMAND), pa.uint8()))
            found += pc.filter(fetched.offsets, command).to_pylist()
        if fetched.end >= end:
            break
    return [at for at in found if start <= at < end]


def left_behind(branch: Branch, partitions: Iterable[int], namespace: str) -> NotReady:
    """The error for partitions that stand before a command which the others have already passed."""
    which = ", ".join(map(str, partitions))
    return NotReady(
        f"of the commit log of {branch.pipeline!r} partitions {which} stand before a truncate of {namespace} that the "
        "others have passed, by an operator's mark; "
        f"`tailrace offset delete {branch.pipeline} {branch.name}` delivers everything again"
    )
