"""Standing commands: the partitions that have reached a command, and wait there for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace.adaptors.contract import Command
from tailrace.pipeline.deliver.delivery import Outcome
from tailrace.pipeline.deliver.offsets import Mark


@dataclass(slots=True)
class StandingCommands:
    """The partitions that stand before a command: partition → (namespace, command); `wide` partitions have it."""

    wide: int
    at: dict[int, tuple[str, Command]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.at)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add the commands that tasks have reached."""
        for outcome in outcomes:
            self.at |= outcome.commands

    def due(self) -> tuple[str, Command] | None:
        """The command before which all partitions stand; None if some do not yet.  All rows before it are delivered."""
        return next(iter(self.at.values())) if self.at and len(self.at) >= self.wide else None

    def pass_by(self, marks: Mapping[int, Mark]) -> None:
        """Acknowledge the command in all partitions, after it was carried out."""
        for q in self.at:
            marks[q].acknowledge(marks[q].resume)
        self.at = {}
