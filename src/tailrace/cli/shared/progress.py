"""A progress bar on stderr, for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

BAR_AFTER_SECONDS = 1.0
"""Seconds before a bar appears."""


class Bar:
    """Shows how far a command has come, if stderr is a terminal and the command takes longer than a second.

    `total` is 0 if it is not known; `unit` is "bytes" or what is counted."""

    def __init__(self, what: str, total: int, unit: str = "bytes") -> None:
        self._what, self._total, self._unit = what, total, unit
        self._began, self._done = time.monotonic(), 0
        self._shown: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()

    def advance(self, by: int) -> None:
        """Add `by` to what is done."""
        self.reach(self._done + by)

    def reach(self, done: int) -> None:
        """Set what is done, and show the bar if it is time."""
        self._done = done
        if self._shown is None and sys.stderr.isatty() and time.monotonic() - self._began >= BAR_AFTER_SECONDS:
            self._shown = self._show()
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=done)

    def _show(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        known = self._total > 0
        amount: ProgressColumn = DownloadColumn() if self._unit == "bytes" else MofNCompleteColumn()
        left = TimeRemainingColumn() if known else TimeElapsedColumn()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), amount, left)
        shown = Progress(*columns, console=Console(stderr=True), transient=True)
        shown.add_task(self._what, total=self._total if known else None)
        shown.start()
        return shown
