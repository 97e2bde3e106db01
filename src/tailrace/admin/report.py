"""Report: what a scrub has read and found."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tailrace.errors import Damaged
from tailrace.log.integrity.damage import Damage, Kind, distinct
from tailrace.log.integrity.scrub import ScrubResult


@dataclass(slots=True)
class Report:
    """The result of a scrub.  Without `damages`, everything that was acknowledged is there."""

    found: ScrubResult = field(default_factory=ScrubResult)
    topics: int = 0
    groups: int = 0
    producers: int = 0
    streams: int = 0
    unread: int = 0
    """Chunks outside the sample: they exist, but the scrub did not read their bytes."""
    orphans: int = 0
    orphan_bytes: int = 0
    """Chunks that nothing refers to, now or later, and their bytes; cleaning removes them."""
    pending: int = 0
    """Chunks that nothing refers to at the moment: a producer is appending them, or they are merged and wait for
    cleaning."""
    notes: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def damages(self) -> list[Damage]:
        """All damage found, without repetitions."""
        return distinct(self.found.damages)

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged."""
        return not self.found.damages

    def add(self, found: ScrubResult) -> None:
        """Add the result of one piece; any thread may call this."""
        with self._lock:
            self.found.add(found)

    def damage(self, kind: Kind, error: Damaged) -> None:
        """Add the damage that a read has raised."""
        self.add(ScrubResult([Damage(kind, str(error), error.topic, error.where, error.position, error.lost)]))

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
