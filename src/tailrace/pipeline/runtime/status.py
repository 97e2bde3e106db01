"""Status: what a run is doing, for its own view and for `tailrace status` in another terminal."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

WORKING = ("copying", "following")
"""States in which a run reads the source, whatever its writers do."""


@dataclass(slots=True)
class SourceStatus:
    """How far a namespace is: its phase, the pieces and rows that are copied, and the changes that were followed."""

    phase: str = "copy"
    pieces: int = 0
    done: int = 0
    rows: int | None = None
    copied: int = 0
    changes: int = 0


@dataclass(slots=True)
class SinkStatus:
    """How far a writer is."""

    state: str = "starting"
    rows: int = 0
    filtered: int = 0
    skipped: int = 0
    acknowledged: int = 0
    """Messages of the commit log that the writer has delivered or filtered out."""
    lag: int = 0
    """Messages of the commit log that the writer has yet to deliver."""
    oldest: int = 0
    """When the source wrote the oldest of those, in milliseconds since 1970; 0 if there is none."""
    delay: float = 0.0
    """Seconds that the last delivered message took from the source into the sink."""
    error: str = ""
    passed: str = ""
    """A message about the last command, such as a drop or a rename, that the sink could not carry out."""

    def shown(self, now: float) -> dict[str, Any]:
        """This status as plain values, with the `age` in seconds of the oldest pending message."""
        return {**asdict(self), "age": age_of(self.lag, self.oldest, now)}


def age_of(lag: int, oldest: int, now: float) -> float:
    """The age that the status shows: seconds that a writer's oldest pending message has waited by now; it grows while a
    writer is stuck."""
    return round(max(0.0, now - oldest / 1000), 3) if lag and oldest else 0.0


@dataclass(slots=True)
class Status:
    """The status of a run.  The run's threads write it; the view and the status thread read it."""

    pipeline: str
    state: str = "starting"
    error: str = ""
    position: str = ""
    health: str = ""
    """How long ago each log of the source last answered."""
    delay: float = 0.0
    records: int = 0
    sources: dict[str, SourceStatus] = field(default_factory=dict)
    sinks: dict[str, SinkStatus] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def source(self, namespace: str) -> SourceStatus:
        """The status of a namespace; creates it if there is none."""
        with self.lock:
            return self.sources.setdefault(namespace, SourceStatus())

    def shown(self) -> dict[str, Any]:
        """This status as plain values."""
        with self.lock:
            sinks, now = dict(self.sinks), time.time()
            stuck = bool(sinks) and all(sink.state == "stopped" for sink in sinks.values())
            return {
                "pipeline": self.pipeline,
                "state": f"{self.state}, every writer stopped" if stuck and self.state in WORKING else self.state,
                "error": self.error,
                "position": self.position,
                "health": self.health,
                "delay": self.delay,
                "records": self.records,
                "sources": {name: asdict(source) for name, source in dict(self.sources).items()},
                "sinks": {name: sink.shown(now) for name, sink in sinks.items()},
            }
