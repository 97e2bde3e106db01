"""Standing commands: the partitions that have come to a command, and wait there for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace.adaptors.contract import Command
from tailrace.pipeline.deliver.delivery import Outcome
from tailrace.pipeline.deliver.offsets import Mark


@dataclass(slots=True)
class StandingCommands:
    """Where partitions stand before a command: partition → (namespace, command); `wide` partitions have it."""

    wide: int
    at: dict[int, tuple[str, Command]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.at)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Tasks have come to commands."""
        for outcome in outcomes:
            self.at |= outcome.commands

    def due(self) -> tuple[str, Command] | None:
        """The command that all partitions stand before, if they do: all rows before it are in."""
        return next(iter(self.at.values())) if self.at and len(self.at) >= self.wide else None

    def pass_by(self, marks: Mapping[int, Mark]) -> None:
        """It was carried out: all partitions go on behind it."""
        for q in self.at:
            marks[q].acknowledge(marks[q].resume)
        self.at = {}
