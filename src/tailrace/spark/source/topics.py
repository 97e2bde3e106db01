"""Topics: which ones a job reads, and from which offsets to which; decided on the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.errors import BadSetting, OutOfRange, UnknownPartition, UnknownTopic
from tailrace.home import Home
from tailrace.log.format.head import Head
from tailrace.log.read.seek import offset_at
from tailrace.log.topic_log import TopicLog
from tailrace.spark.options import ReadOptions, moment
from tailrace.spark.source.offsets import NOT_OFFSETS

EARLIEST, LATEST = -2, -1
"""What these numbers stand for in startingOffsets and endingOffsets."""


@dataclass(frozen=True)
class TopicExtent:
    """The present state of a topic: the lowest offset kept and the next one written, of each partition that is read."""

    name: str
    id: str
    floor: dict[int, int]
    next: dict[int, int]
    head: Head

    def until(self, positions: Mapping[int, int]) -> dict[int, int]:
        """How far a query that has read everything before these offsets may go in one batch.  Where the topic has
        grown, it must first read everything up to that point, since keys continue in other partitions."""
        for growth in self.head.grown:
            if any(positions[q] < at for q, at in growth.at.items() if q in self.next):
                return {q: min(end, growth.at[q]) for q, end in self.next.items()}
        return self.next


def log_of(home: Home, name: str, id: str) -> TopicLog:
    """A topic's log, as one task sees it."""
    table = home.store.table
    return TopicLog(name, id, table.inline_bytes, table.joins_inline)


def check_subscription(reading: ReadOptions) -> None:
    """Refuse anything but exactly one of the three ways to name topics."""
    given = [n for n in ("subscribe", "subscribe_pattern", "assign") if getattr(reading, n) is not None]
    if len(given) != 1:
        raise BadSetting("say which topics: one of the options subscribe, subscribePattern and assign")
    if reading.subscribe_pattern is not None:
        try:
            re.compile(reading.subscribe_pattern)
        except re.error as error:
            raise BadSetting(f"subscribePattern {reading.subscribe_pattern!r} is no pattern: {error}") from None


def extents(home: Home, reading: ReadOptions, *, missing_ok: bool = False) -> dict[str, TopicExtent]:
    """Look up the topics that a job reads: for each its partitions with their floors and ends at this moment."""
    wanted: dict[str, list[int] | None]
    if reading.assign is not None:
        wanted = dict(_assigned(reading.assign))
    elif reading.subscribe is not None:
        wanted = dict.fromkeys(_names(reading.subscribe))
    else:
        pattern, missing_ok = reading.subscribe_pattern or "", True  # a topic may be deleted after it was listed
        wanted = dict.fromkeys(name for name in home.topics() if re.fullmatch(pattern, name))
    out = {}
    for name, partitions in wanted.items():
        try:
            out[name] = _extent(home, name, partitions)
        except UnknownTopic:
            if not missing_ok:
                raise
    return out


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _extent(home: Home, name: str, partitions: list[int] | None = None) -> TopicExtent:
    topic = home.topic(name)
    head = home.store.run(topic.log.head())
    chosen = sorted(head.next) if partitions is None else partitions
    for q in chosen:
        if q not in head.next:
            raise UnknownPartition(f"topic {name!r} has no partition {q!r}; it has 0 to {len(head.next) - 1}")
    return TopicExtent(name, topic.id, {q: head.floor[q] for q in chosen}, {q: head.next[q] for q in chosen}, head)


def _assigned(text: str) -> dict[str, list[int]]:
    found = _json("assign", text, '{"orders": [0, 1]}')
    for partitions in found.values():
        if not isinstance(partitions, list) or not all(type(q) is int for q in partitions):
            raise BadSetting(f'assign is as in {{"orders": [0, 1]}}, not {text!r}')
    return found


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadSetting(f"{name} is as in {example}, not {text!r}")
    return found


def parse_offsets(name: str, text: str) -> dict[str, dict[int, int]] | str:
    """Parses 'earliest', 'latest', or offsets by topic and partition (-2 earliest, -1 latest)."""
    if text in ("earliest", "latest"):
        return text
    example = '\'earliest\', \'latest\' or {"orders": {"0": 23, "1": -2}}'
    out = {}
    for topic, offsets in _json(name, text, example).items():
        try:
            out[topic] = {int(q): int(n) for q, n in offsets.items() if q not in NOT_OFFSETS}
            if any(n < EARLIEST for n in out[topic].values()):
                raise ValueError
        except (AttributeError, TypeError, ValueError):
            raise BadSetting(f"{name} is as in {example}, not {text!r}") from None
    return out


def starts(home: Home, extent: TopicExtent, reading: ReadOptions, default: str) -> dict[int, int]:
    """The offsets at which reading a topic begins, regardless of removed records."""
    if reading.starting_timestamp is not None:
        return _at_time(home, extent, moment("startingTimestamp", reading.starting_timestamp))
    given = parse_offsets("startingOffsets", reading.starting_offsets or default)
    return _resolved(extent, given, "earliest", "startingOffsets")


def ends(home: Home, extent: TopicExtent, reading: ReadOptions) -> dict[int, int]:
    """The offsets at which a batch read of a topic ends."""
    if reading.ending_timestamp is not None:
        return _at_time(home, extent, moment("endingTimestamp", reading.ending_timestamp))
    given = parse_offsets("endingOffsets", reading.ending_offsets or "latest")
    if given == "earliest":
        raise BadSetting("endingOffsets cannot be 'earliest'")
    return _resolved(extent, given, "latest", "endingOffsets")


def _at_time(home: Home, extent: TopicExtent, when: int) -> dict[int, int]:
    log = log_of(home, extent.name, extent.id)
    found = {q: home.store.run(offset_at(log, q, when)) for q in extent.next}
    return {q: min(n, extent.next[q]) for q, n in found.items()}


def _resolved(extent: TopicExtent, given: dict[str, dict[int, int]] | str, unnamed: str, option: str) -> dict[int, int]:
    ends = {"earliest": extent.floor, "latest": extent.next}
    if isinstance(given, str):
        return dict(ends[given])
    named = given.get(extent.name, {})
    for q, n in named.items():
        if q not in extent.next:
            raise UnknownPartition(f"{option}: topic {extent.name!r} has no partition {q}, or it is not assigned")
        if n > extent.next[q]:
            raise OutOfRange(
                f"{option}: offset {n} of partition {q} of {extent.name!r} is beyond its end, {extent.next[q]}",
                floor=extent.floor[q],
                end=extent.next[q],
            )
    special = {EARLIEST: extent.floor, LATEST: extent.next}
    out = dict(ends[unnamed])
    for q, n in named.items():
        out[q] = special[n][q] if n in special else n
    return out


def kept(extent: TopicExtent, start: Mapping[int, int], fail: bool) -> dict[int, int]:
    """The offsets at which reading begins, raised to the floor where they are below it; with `fail`, an error instead
    if records to be read were removed."""
    for q, at in start.items():
        if at < extent.floor[q] and fail:
            raise OutOfRange(
                f"offsets {at} to {extent.floor[q] - 1} of partition {q} of {extent.name!r} were to be read and are "
                "removed; start at 'earliest', or say option('failOnDataLoss', 'false') to go on from "
                f"{extent.floor[q]}",
                floor=extent.floor[q],
                end=extent.next[q],
            )
    return {q: max(at, extent.floor[q]) for q, at in start.items()}


def check_settings(reading: ReadOptions, known: Mapping[str, TopicExtent]) -> None:
    """Refuse offsets of topics that are not read, and two options that say the same."""
    for offsets, time in (("starting_offsets", "starting_timestamp"), ("ending_offsets", "ending_timestamp")):
        text = getattr(reading, offsets)
        option = offsets.replace("_o", "O")
        if text is not None and getattr(reading, time) is not None:
            raise BadSetting(f"{option} and {time.replace('_t', 'T')} are both given; one of them says where")
        given = parse_offsets(option, text) if text is not None else {}
        for topic in given if isinstance(given, dict) else ():
            if topic not in known and reading.subscribe_pattern is None:
                raise BadSetting(f"{option} names the topic {topic!r}, which is not read here")
