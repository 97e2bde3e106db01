"""`tailrace queue stats`: how many messages a queue has, once or live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, complete_topics
from tailrace.cli.shared.output import ago, console, print_facts, print_json, print_table, table_of
from tailrace.cli.shared.session import opened

if TYPE_CHECKING:
    from tailrace.queue import Stats

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=complete_topics)
]
NUMBERS = ("routed", "emitted", "acked", "errored", "dead", "running", "backlog")
WIDE_TERMINAL_COLUMNS = 90
"""Columns that a terminal must have for `--watch` to show all numbers."""


def register(app: typer.Typer) -> None:
    """Add `tailrace queue stats`."""
    command(app)(stats)


def as_json(one: Stats) -> dict[str, object]:
    """Return stats as `tailrace queue stats --json` prints them."""
    from tailrace.queue.stats import as_json as plain

    return plain(one)


def age(one: Stats) -> str:
    """Return the age of the oldest message of a queue that is not done."""
    return ago(one.oldest_seconds) if one.backlog else "-"


def stats(
    queue: QueueArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them again every second, until Ctrl-C.")] = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Show how many messages a queue has in each state, by shard and in all.

    Examples:

        tailrace queue stats emails
        tailrace queue stats emails --watch
        tailrace queue stats emails --json | jq .backlog
    """
    with opened(home) as here:
        chosen = here.queue(queue)
        if not watch:
            _print_stats(queue, chosen.stats(), json_too)
        elif json_too or not sys.stdout.isatty():
            while True:
                _print_line(queue, chosen.stats(), json_too)
                time.sleep(1.0)
        else:
            _watch(queue, chosen.stats)


def _print_stats(queue: str, now: Stats, json_too: bool) -> None:
    if json_too:
        each = [{"shard": q, **as_json(one)} for q, one in now.shards.items()]
        print_json({"queue": queue, **as_json(now), "shards": each})
        return
    facts = [("queue", queue), ("inserted", f"{now.inserted:,}"), ("delayed", f"{now.delayed:,}")]
    print_facts(facts)
    print()
    used = [q for q, one in now.shards.items() if one.routed or one.owner]
    print_table(*_by_shard(now, NUMBERS, used))
    if unused := len(now.shards) - len(used):
        print(f"{unused} of {len(now.shards)} shards have had no message, and no consumer has them")


def _print_line(queue: str, now: Stats, json_too: bool) -> None:
    """Print the stats on one line, for files and programs."""
    shown = {"queue": queue, **as_json(now)}
    text = "  ".join(f"{name} {shown[name]}" for name in ("queue", *NUMBERS))
    print(json.dumps(shown) if json_too else text, flush=True)


def _largest(now: Stats, most: int) -> list[int]:
    """Return the shards with the largest backlogs, at most `most` of them."""
    return sorted(sorted(now.shards, key=lambda q: -now.shards[q].backlog)[:most])


def _by_shard(now: Stats, names: Sequence[str], chosen: Sequence[int]) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return the column names and rows of a table of the chosen shards; its last row is the sum of all shards."""
    rows = [(q, now.shards[q]) for q in chosen]
    shown: list[tuple[object, ...]] = [
        (q, *(getattr(one, name) for name in names), age(one), one.owner or "-") for q, one in rows
    ]
    total = ("all", *(getattr(now, name) for name in names), age(now), "paused" if now.paused else "")
    return ["shard", *names, "oldest", "consumer"], [*shown, total]


def _watch(queue: str, look: Callable[[], Stats]) -> None:
    """Show a table that fits the terminal, and renew it every second until Ctrl-C."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    out = console()

    def shown() -> Group:
        now = look()
        names = NUMBERS if out.width >= WIDE_TERMINAL_COLUMNS else NUMBERS[-2:]
        paused = ", paused" if now.paused else ""
        head = f"{queue}: {now.inserted:,} inserted, {now.delayed:,} delayed{paused}; Ctrl-C ends"
        table = table_of(*_by_shard(now, names, _largest(now, max(1, out.height - 4))))
        return Group(Text(head, no_wrap=True, overflow="ellipsis"), table)

    with Live(shown(), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(1.0)
            live.update(shown(), refresh=True)
