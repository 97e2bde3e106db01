"""Upkeep: what is done to a topic's history behind its readers' backs.

In this order: retention removes the oldest pages, compaction all but the newest record of each key, merging makes few
large objects of many small ones, cleaning removes bytes that nothing refers to any more.  Each is made of guarded
writes, so upkeep can be cut off anywhere, and two at the same time only get in each other's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.log import tiers
from tailrace.log.append import Log
from tailrace.log.cleaning import clean
from tailrace.log.compaction import compact
from tailrace.log.merging import Told, merge_all, unheard
from tailrace.log.retention import Keep, retain
from tailrace.log.rounds import Compacting
from tailrace.log.settings import Settings
from tailrace.log.sparing import undecided
from tailrace.storage.calls import Steps

PARTS = 8
"""A merged object or page holds at most this part of what retention keeps, since a page goes as a whole."""
LEAST = 1024 * 1024
"""… but objects of this size are made in any case."""


@dataclass(slots=True)
class Tended:
    """What one upkeep of a topic did."""

    topic: str
    expired_records: int = 0
    expired_bytes: int = 0
    compacted_records: int = 0
    """Records that compaction has removed: a newer one of their key is there, or a tombstone was old enough."""
    spared_chunks: int = 0
    """Chunks that compaction could not read, and has left as they are."""
    merged_pages: int = 0
    """By how many pages the topic has become fewer."""
    written_bytes: int = 0
    """Bytes of objects that compaction and merging have made."""
    cleaned_chunks: int = 0
    cleaned_bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    """Why it could not be finished."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.expired_records or self.written_bytes or self.cleaned_chunks or self.error)


def tend(
    log: Log,
    settings: Settings,
    done: Tended,
    wall: int,
    held: Mapping[int, int] | None = None,
    told: Told = unheard,
) -> Steps[None]:
    """One upkeep of a topic, at this time in milliseconds since 1970; what was done so far stands in `done`.

    `held`: the first offset of each partition that somebody still needs; nothing from there on is removed."""

    def wrote(bytes: int) -> None:
        done.written_bytes += bytes
        told(bytes)

    since = None if settings.retention_ms is None else wall - settings.retention_ms
    keep = Keep(since, settings.retention_bytes, held)
    done.expired_records, done.expired_bytes = yield from retain(log, keep)
    if settings.compact:
        compacted = yield from compact(log, compacting(settings, wall, held), wrote)
        done.compacted_records, done.spared_chunks = compacted.records, len(compacted.spared)
        done.error = yield from undecided(log, compacted.spared)
    if settings.merge_bytes is not None:
        size = object_size(settings)
        span = None if settings.retention_ms is None else settings.retention_ms // PARTS
        done.merged_pages += yield from merge_all(log, settings.compression, size, span, wrote)
    cleaned = yield from clean(log)
    done.cleaned_chunks, done.cleaned_bytes = cleaned.chunks, cleaned.bytes


def object_size(settings: Settings) -> int:
    """How large an object that upkeep makes of a topic may become."""
    most = tiers.SIZE if settings.merge_bytes is None else settings.merge_bytes
    if settings.retention_bytes is None:
        return most
    return min(most, max(settings.retention_bytes // PARTS, LEAST))


def compacting(settings: Settings, wall: int, held: Mapping[int, int] | None) -> Compacting:
    """How a topic is to be compacted now."""
    delay = settings.tombstone_ms
    return Compacting(settings.compact_by, wall - delay, delay, held, settings.compression, object_size(settings))
