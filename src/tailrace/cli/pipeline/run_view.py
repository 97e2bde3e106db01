"""The view of a run: live in a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.cli.shared.output import ago, counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

OLD_AFTER_SECONDS = 10.0
"""Seconds after which a line says how long the oldest message has waited."""
MAX_NAMESPACES_SHOWN = 20
"""How many namespaces the live view shows."""
NUMBERS = ("COPIED", "CHANGES", "ROWS", "BEHIND", "OLDEST", "DELAY", "PER S")
STYLES = {"stopped": "red", "waiting": "yellow", "looking": "yellow"}


class Rates:
    """The growth rates of counters over the last seconds."""

    def __init__(self, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def __call__(self, name: str, count: int) -> float:
        """Return the rate of a counter that is at `count` now."""
        now, seen = self._clock(), self._seen.setdefault(name, deque())
        seen.append((now, count))
        while len(seen) > 2 and now - seen[1][0] >= self._seconds:
            seen.popleft()
        then, before = seen[0]
        return (count - before) / (now - then) if now > then else 0.0


class RunView:
    """Renders the status of one run repeatedly, and so knows its rates."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates, self._pieces = Rates(5.0, clock), Rates(60.0, clock)

    def line(self, status: dict[str, Any], as_json: bool) -> str:
        """Return a status on one line: as text, or as JSON."""
        if as_json:
            return json.dumps(status)
        copied = sum(s["copied"] for s in status["sources"].values())
        changes = sum(s["changes"] for s in status["sources"].values())
        sinks = "; ".join(
            f"{name} {s['state']} {s['rows']:,} rows, {_failed(s)}{_behind(s)}"
            + (f": {s['error']}" if s["error"] else "")
            for name, s in status["sinks"].items()
        )
        copying = copied or any(s["phase"] == "copy" for s in status["sources"].values())
        read = f"{copied:,} copied, " if copying else ""
        rate = self._rates("records", status["records"])
        trouble = f" ({status['error']})" if status["error"] else ""
        return f"{status['state']}{trouble}: {read}{changes:,} changes, {rate:,.0f}/s | {sinks}"

    def live(self, status: dict[str, Any]) -> RenderableType:
        """Return the live view: what is read, namespace by namespace, and what is written, writer by writer."""
        from rich.console import Group
        from rich.text import Text

        if not status["sources"] and not status["sinks"]:
            return self._head(status)
        troubles = dict.fromkeys([status["error"], *(s["error"] for s in status["sinks"].values())])
        over = status["state"] == "stopped"  # the command prints the error that ended the run after the view
        shown = [Text(trouble, "red") for trouble in troubles if trouble and not over]
        shown += [Text(f"{name}: {told}", "yellow") for name, s in status["sinks"].items() if (told := failures(s))]
        health = [Text(status["health"], "dim")] if status["health"] else []
        return Group(self._head(status), Text(), self._sources(status), *health, Text(), self._sinks(status), *shown)

    def _head(self, status: dict[str, Any]) -> RenderableType:
        from rich.text import Text

        rate = self._rates("records", status["records"])
        counts = f"  {status['records']:,} messages, {rate:,.0f}/s"
        head = Text.assemble((status["pipeline"], "bold"), "  ", status["state"], counts)
        return head.append(f"  read {status['delay']:.1f} s after it happened") if status["delay"] else head

    def _sources(self, status: dict[str, Any]) -> Table:
        table = _table("FROM", "PHASE", "COPIED", "", "CHANGES")
        for name, s in list(status["sources"].items())[:MAX_NAMESPACES_SHOWN]:
            copied = f"{s['copied']:,}" if s["copied"] or s["phase"] == "copy" else "before"
            table.add_row(name, s["phase"], copied, self._progress(name, s), f"{s['changes']:,}")
        if len(status["sources"]) > MAX_NAMESPACES_SHOWN:
            table.add_row(f"… and {len(status['sources']) - MAX_NAMESPACES_SHOWN} more")
        return table

    def _progress(self, name: str, source: dict[str, Any]) -> str:
        """Return how much of a copy is done, and how long the rest will take."""
        if source["phase"] != "copy" or not source["pieces"]:
            return ""
        share, rate = source["done"] / source["pieces"], self._pieces(name, source["done"])
        left = f" {(source['pieces'] - source['done']) / rate:,.0f} s left" if rate else ""
        return f"{'█' * round(share * 20):░<20} {share:4.0%}{left}"

    def _sinks(self, status: dict[str, Any]) -> Table:
        from rich.text import Text

        table = _table("INTO", "STATE", "ROWS", "PER S", "BEHIND", "OLDEST", "DELAY")
        for name, s in status["sinks"].items():
            state, rate = Text(s["state"], STYLES.get(s["state"], "green")), self._rates(f"sink {name}", s["rows"])
            counts = (f"{s['rows']:,}", f"{rate:,.0f}", f"{s['lag']:,}", ago(s["age"]), f"{s['delay']:.1f} s")
            table.add_row(name, state, *counts)
        return table


def failures(sink: dict[str, Any]) -> str:
    """Return how many messages failed in this run and were not delivered, since the writer's `on_error` allows that."""
    count = sink["skipped"]
    return f"{counted(count, 'message')} failed, as on_error allows, and not delivered" if count else ""


def _failed(sink: dict[str, Any]) -> str:
    return f"{sink['skipped']:,} failed, " if sink["skipped"] else ""


def _behind(sink: dict[str, Any]) -> str:
    """Return how many messages are pending, and for how long if that is longer than a batch usually takes."""
    return f"{sink['lag']:,} behind" + (f" for {ago(sink['age'])}" if sink["age"] >= OLD_AFTER_SECONDS else "")


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    return table
