"""Upkeep: what is done to a topic's history behind its readers' backs.

In this order: retention removes the oldest pages, merging makes few large objects of many small ones, cleaning
removes bytes that nothing refers to any more.  Each is made of guarded writes, so upkeep can be cut off anywhere, and
two at the same time only get in each other's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.log.append import Log
from tailrace.log.cleaning import clean
from tailrace.log.merging import Told, merge_all, unheard
from tailrace.log.retention import Keep, retain
from tailrace.log.settings import Settings
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
    merged_pages: int = 0
    """By how many pages the topic has become fewer."""
    written_bytes: int = 0
    """Bytes of objects that merging has made."""
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
    if settings.merge_bytes is not None:
        size = object_size(settings)
        span = None if settings.retention_ms is None else settings.retention_ms // PARTS
        done.merged_pages += yield from merge_all(log, settings.compression, size, span, wrote)
    cleaned = yield from clean(log)
    done.cleaned_chunks, done.cleaned_bytes = cleaned.chunks, cleaned.bytes


def object_size(settings: Settings) -> int:
    """How large a merged object of a topic may become."""
    assert settings.merge_bytes is not None
    if settings.retention_bytes is None:
        return settings.merge_bytes
    return min(settings.merge_bytes, max(settings.retention_bytes // PARTS, LEAST))
