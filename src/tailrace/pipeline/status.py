"""Status: what a run is doing, for people and for `tailrace status` in another terminal."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Source:
    """How far a namespace is: copied, or followed with what delay."""

    phase: str = "copy"
    pieces: int = 0
    done: int = 0
    rows: int | None = None
    copied: int = 0
    changes: int = 0


@dataclass(slots=True)
class Sink:
    """How far a writer is."""

    state: str = "starting"
    rows: int = 0
    filtered: int = 0
    skipped: int = 0
    offset: int = -1
    lag: int = 0
    delay: float = 0.0
    error: str = ""


@dataclass(slots=True)
class Status:
    """All of a run.  Written by its threads, read by whoever shows it."""

    pipeline: str
    state: str = "starting"
    error: str = ""
    position: str = ""
    delay: float = 0.0
    records: int = 0
    sources: dict[str, Source] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def shown(self) -> dict[str, Any]:
        """All of it as plain values."""
        with self.lock:
            return {
                "pipeline": self.pipeline,
                "state": self.state,
                "error": self.error,
                "position": self.position,
                "delay": self.delay,
                "records": self.records,
                "sources": {name: asdict(source) for name, source in self.sources.items()},
                "sinks": {name: asdict(sink) for name, sink in self.sinks.items()},
            }
