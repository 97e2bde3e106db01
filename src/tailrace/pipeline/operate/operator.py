"""Operators' functions: read the commit log, show and move a writer's offsets, show dead letters.

Each change is first recorded in the ledger, with the operator's name and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import BadInput, NotThere
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.write.source_append import log_name
from tailrace.pipeline.deliver import offsets
from tailrace.pipeline.deliver.command_marks import moved
from tailrace.pipeline.deliver.dead_letters import dead_letter, dead_letters, dead_messages
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.ingest.reader_state import namespaces_of
from tailrace.pipeline.operate.ledger import note, pipelines, remembered


class Logged(NamedTuple):
    """A message of the commit log with its partition and offset."""

    partition: int
    offset: int
    message: Message


def commit_log(home: Home, pipeline: str) -> Topic:
    """A pipeline's commit log; `NotThere` if the pipeline has never run."""
    if pipeline not in pipelines(home):
        raise NotThere(f"the pipeline {pipeline!r} has never run in {home.url}")
    return home.topic(log_name(pipeline))


def messages(home: Home, pipeline: str, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Logged]:
    """The messages of the commit log in the partitions in `start`, from their `start` up to, but not including, their
    `end`."""
    topic = commit_log(home, pipeline)
    for q in sorted(start):
        for fetched in topic.fetch(q, start[q]):
            for n, message in zip(fetched.offsets.to_pylist(), messages_of(fetched.data), strict=True):
                if n >= end.get(q, 1 << 62):
                    break
                yield Logged(q, n, message)
            if fetched.end >= end.get(q, 1 << 62):
                break


def writers(home: Home, pipeline: str) -> list[str]:
    """The names of a pipeline's writers in its last run."""
    known = remembered(home, pipeline)
    if known is None:
        raise NotThere(f"the pipeline {pipeline!r} has never run in {home.url}")
    return list(known["sinks"])


def marks(home: Home, pipeline: str, writer: str) -> dict[int, Mark]:
    """A writer's mark in each partition, as the home has stored it."""
    topic = commit_log(home, pipeline)
    if writer not in writers(home, pipeline):
        raise NotThere(f"{pipeline!r} has no writer {writer!r}; it has: {', '.join(writers(home, pipeline))}")
    return home.store.run(offsets.load(pipeline, writer, topic.partitions))[1]


class Planned(NamedTuple):
    """The effect of `mark`: a writer's current marks, and the new marks of the partitions that change."""

    before: Mapping[int, Mark]
    after: Mapping[int, Mark]


def plan_mark(
    home: Home, pipeline: str, writer: str, partition: int, offset: int, namespace: str | None = None
) -> Planned:
    """What an operator's `mark` would change; `BadInput` if it would refuse.  Changes nothing."""
    now, topic = marks(home, pipeline, writer), commit_log(home, pipeline)
    floor, end = topic.ends()[partition] if partition in now else (0, -1)
    if not -1 <= offset < end:
        raise BadInput(f"the commit log of {pipeline!r} has no message {partition}:{offset}")
    if offset < floor - 1:
        raise BadInput(
            f"the commit log of {pipeline!r} begins with {partition}:{floor}, what came before was removed; "
            f"{partition}:{floor - 1} delivers all that is left"
        )
    new = now[partition].copy()
    if namespace is None:
        new = Mark(offset)
    elif offset > new.low:
        new.ahead[namespace] = offset
    else:
        raise BadInput(f"everything up to {partition}:{new.low} is acknowledged for all namespaces; mark without one")
    return Planned(now, {**moved(topic, now, partition, offset, namespace), partition: new})


def mark(
    home: Home, pipeline: str, writer: str, partition: int, offset: int, why: str, namespace: str | None = None
) -> Mark:
    """Set a writer's mark: everything up to an offset counts as delivered, of one namespace or of all.

    A higher mark skips messages that the writer cannot deliver.  A lower one delivers again what the log still has from
    there on; upkeep may have compacted, or be compacting, messages that the writer had passed.  Fences the current
    run.  Where a command requires it, other partitions' marks move, too."""
    marked = plan_mark(home, pipeline, writer, partition, offset, namespace).after
    if not why.strip():
        raise BadInput("say why: --why '…'; it is kept with the pipeline")
    note(home, pipeline, "mark", why, writer=writer, partition=partition, offset=offset, namespace=namespace)
    for q, mark in marked.items():
        home.store.run(offsets.override(pipeline, writer, q, mark))
    return marked[partition]


def forget(home: Home, pipeline: str, writer: str, why: str) -> None:
    """Set a writer's marks before the oldest message that the commit log still has; they also override the offsets that
    its sink keeps.  Fences the current run."""
    marks(home, pipeline, writer)
    note(home, pipeline, "delete offsets", why, writer=writer)
    for q, (floor, _) in commit_log(home, pipeline).ends().items():
        home.store.run(offsets.override(pipeline, writer, q, Mark(floor - 1)))


def dead(home: Home, pipeline: str) -> list[dict[str, Any]]:
    """The dead letters of a pipeline that are not settled, oldest first."""
    return dead_letters(home, pipeline)


def dead_one(home: Home, pipeline: str, number: int) -> tuple[dict[str, Any], Message]:
    """A dead letter with its message; `NotThere` if either is missing."""
    letter = dead_letter(home, pipeline, number)
    ((_, one),) = dead_messages(home, pipeline, [letter])
    return letter, next(messages_of(one.data))


def namespaces(home: Home, pipeline: str) -> list[str]:
    """The names of all namespaces that a pipeline has read, in order."""
    commit_log(home, pipeline)
    return sorted(namespaces_of(home.store, pipeline))
