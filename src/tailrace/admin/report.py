"""The report of a scrub."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tailrace.errors import Damaged
from tailrace.log.integrity.damage import Damage, Kind, distinct
from tailrace.log.integrity.scrub import ScrubResult


@dataclass(slots=True)
class Report:
    """What a scrub has read and found.  Without `damages`, everything that was acknowledged is there."""

    found: ScrubResult = field(default_factory=ScrubResult)
    topics: int = 0
    groups: int = 0
    producers: int = 0
    streams: int = 0
    unread: int = 0
    """Chunks that a sample left out: they exist, but their bytes were not read."""
    orphans: int = 0
    orphan_bytes: int = 0
    """Chunks that nothing refers to and nothing can any more; cleaning removes them."""
    pending: int = 0
    """Chunks that nothing refers to at the moment: being appended, or merged and waiting for cleaning."""
    notes: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def damages(self) -> list[Damage]:
        """Each damage once."""
        return distinct(self.found.damages)

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged."""
        return not self.found.damages

    def add(self, found: ScrubResult) -> None:
        """Add what a thread has counted."""
        with self._lock:
            self.found.add(found)

    def damage(self, kind: Kind, error: Damaged) -> None:
        """Note damage that a read has found."""
        where = error.where if error.where in str(error) or not error.where else f"{error.where}"
        self.add(ScrubResult([Damage(kind, str(error), error.topic, where, error.position, error.lost)]))

    def as_json(self) -> dict[str, Any]:
        """The report as JSON, for programs."""
        read = self.found
        return {
            "clean": self.clean,
            "read": {
                "bytes": read.bytes,
                "chunks": read.chunks,
                "runs": read.runs,
                "records": read.records,
                "at_most": read.at_most,
            },
            "unread_chunks": self.unread,
            "topics": self.topics,
            "groups": self.groups,
            "producers": self.producers,
            "streams": self.streams,
            "orphans": {"count": self.orphans, "bytes": self.orphan_bytes},
            "pending": self.pending,
            "notes": self.notes,
            "damages": [
                {
                    "kind": d.kind,
                    "topic": d.topic or None,
                    "where": d.where,
                    "byte": d.byte,
                    "text": d.text,
                    "lost": [{"partition": q, "first": first, "last": end - 1} for q, first, end in d.lost],
                }
                for d in self.damages
            ],
        }
