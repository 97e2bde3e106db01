"""Topic upkeep: all of a topic's upkeep in order, while readers read it.

First retention removes the oldest pages, then compaction all but the newest record of each key; then merging makes a
few large objects of many small ones, and cleaning removes bytes that nothing refers to any more.  Each consists of
guarded writes, so upkeep can be interrupted anywhere, and two upkeeps at the same time do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.log.settings import TopicSettings
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import merge_plan
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings
from tailrace.log.upkeep.compaction.unreadable import undecided
from tailrace.log.upkeep.merge import Told, ignore_report, merge_all
from tailrace.log.upkeep.retention import RetentionRule, retain
from tailrace.storage.calls import Steps

MERGED_PARTS_OF_RETENTION = 8
"""A merged object or page holds at most this part of what retention keeps, since retention removes a page as a
whole."""
MIN_MERGED_BYTES = 1024 * 1024
"""Objects may become this large in any case."""


@dataclass(slots=True)
class UpkeepResult:
    """What one run of upkeep did to a topic."""

    topic: str
    expired_records: int = 0
    expired_bytes: int = 0
    compacted_records: int = 0
    """Records that compaction has removed: their key has a newer record, or a tombstone that was old enough."""
    spared_chunks: int = 0
    """Chunks that compaction could not read, and has left as they are."""
    merged_pages: int = 0
    """By how many the topic's pages became fewer."""
    written_bytes: int = 0
    """Bytes of objects that compaction and merging have made."""
    cleaned_chunks: int = 0
    cleaned_bytes: int = 0
    clock_ahead_ms: int = 0
    """How far this host's clock is ahead of the time that retention and compaction used."""
    seconds: float = 0.0
    error: str | None = None
    """Why upkeep could not be finished."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.expired_records or self.written_bytes or self.cleaned_chunks or self.error)


def tend(
    log: TopicLog,
    settings: TopicSettings,
    done: UpkeepResult,
    wall: int,
    held: Mapping[int, int] | None = None,
    told: Told = ignore_report,
) -> Steps[None]:
    """Run upkeep of a topic, at this time in milliseconds since 1970; `done` records what has been done so far.
    `held`: the first offset of each partition that a holder still needs; nothing from there on is removed."""

    def wrote(bytes: int) -> None:
        done.written_bytes += bytes
        told(bytes)

    since = None if settings.retention_ms is None else wall - settings.retention_ms
    keep = RetentionRule(since, settings.retention_bytes, held)
    done.expired_records, done.expired_bytes = yield from retain(log, keep)
    if settings.compact:
        compacted = yield from compact(log, compacting(settings, wall, held), wrote)
        done.compacted_records, done.spared_chunks = compacted.records, len(compacted.spared)
        done.error = yield from undecided(log, compacted.spared)
    if settings.merge_bytes is not None:
        size = object_size(settings)
        span = None if settings.retention_ms is None else settings.retention_ms // MERGED_PARTS_OF_RETENTION
        done.merged_pages += yield from merge_all(log, settings.compression, size, span, wrote)
    cleaned = yield from clean(log)
    done.cleaned_chunks, done.cleaned_bytes = cleaned.chunks, cleaned.bytes


def object_size(settings: TopicSettings) -> int:
    """How many bytes an object that upkeep makes of a topic may have."""
    most = merge_plan.MERGED_OBJECT_BYTES if settings.merge_bytes is None else settings.merge_bytes
    if settings.retention_bytes is None:
        return most
    return min(most, max(settings.retention_bytes // MERGED_PARTS_OF_RETENTION, MIN_MERGED_BYTES))


def compacting(settings: TopicSettings, wall: int, held: Mapping[int, int] | None) -> CompactionSettings:
    """How a topic is to be compacted at this time."""
    delay = settings.tombstone_ms
    return CompactionSettings(
        settings.compact_by, wall - delay, delay, held, settings.compression, object_size(settings)
    )
