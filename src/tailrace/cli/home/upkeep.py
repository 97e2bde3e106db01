"""`tailrace upkeep`: retention, compaction, merging and cleaning of topics, once or repeatedly."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, complete_topics
from tailrace.cli.shared.output import counted, print_json, print_table, size_of, time_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import note, opened
from tailrace.errors import BadInput, Busy, DiskFull, Fenced, Throttled, TimedOut, Unavailable

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.log.upkeep.topic_upkeep import UpkeepResult

app = new_group("Retention, compaction, merging and cleaning of topics.")

SLOWEST = 64 * 1024
"""Bytes a second below which a rate is refused as a slip."""

DAY_MS = 24 * 3600 * 1000
PASSING = (Busy, Fenced, DiskFull, Throttled, TimedOut, Unavailable)
"""Errors that may be over by the next run: another process is at work, or the storage is away."""

TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Only these topics; by default, all.", autocompletion=complete_topics),
]
EveryOption = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="Repeat at this interval, until Ctrl-C: 15m, 1h, 1d.")
]
RateOption = Annotated[
    str | None, typer.Option("--rate", metavar="SIZE", help="The most bytes to write in a second: 20MiB.")
]


@app.callback()
def upkeep(home: HomeOption = None) -> None:
    """Retention, compaction, merging and cleaning of topics."""


@command(app)
def run(
    topics: TopicsArgument = None,
    every: EveryOption = None,
    rate: RateOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the records that retention does not keep, compact topics by key if they are set so, merge small chunks
    into large ones, and delete objects that nothing refers to.  Readers do not notice.

    Only one process of a home runs upkeep at a time.  It can be stopped at any point, and the next run continues.  Each
    topic has its own settings: `tailrace topic set orders retention_ms=30d`.

    Examples:

        tailrace upkeep run
        tailrace upkeep run orders clicks --rate 20MiB
        tailrace upkeep run --every 1h
    """
    os.nice(10)  # other processes come first
    pause = values.seconds(every) if every else None
    speed = values.size(rate) if rate else None
    if speed is not None and speed < SLOWEST:
        raise BadInput(
            f"--rate {rate} is {speed:,} bytes a second, and would hardly ever end; 20MiB is one to begin with"
        )
    with opened(home) as here:
        while True:
            try:
                failed = _once(here, topics or (), speed, as_json, quiet_if_idle=pause is not None)
            except PASSING as error:
                if pause is None:
                    raise
                note(f"{time_of(int(time.time() * 1000))}: {error}; tried again in {every}")
            else:
                if pause is None:
                    raise typer.Exit(1 if failed else 0)
            time.sleep(pause)


def _once(home: Home, topics: Sequence[str], rate: float | None, as_json: bool, *, quiet_if_idle: bool) -> bool:
    """Run upkeep once over the topics; return whether one of them could not be finished."""
    try:
        with Bar("upkeep", 0) as bar:
            done = home.upkeep(*topics, rate=rate, told=lambda topic, bytes: bar.advance(bytes))
    except KeyboardInterrupt:
        note("interrupted; what was done stays, and the next run goes on from there")
        raise
    if as_json:
        print_json([asdict(one) for one in done])
    elif not all(one.idle for one in done):
        if quiet_if_idle:
            print(time_of(int(time.time() * 1000)))
        _print(done)
    else:
        at = f"{time_of(int(time.time() * 1000))}: " if quiet_if_idle else ""
        print(f"{at}nothing to do in {counted(len(done), 'topic')}")
    for one in done:
        if one.clock_ahead_ms > DAY_MS:
            days = one.clock_ahead_ms / DAY_MS
            note(
                f"{one.topic}: this host's clock is {days:.1f} days ahead of all that the topic has seen; what is old "
                "was judged by the topic's own time, which goes on by at most a day with each upkeep"
            )
        if one.error:
            note(f"{one.topic}: {one.error}")
    return any(one.error for one in done)


def _print(done: Sequence[UpkeepResult]) -> None:
    print_table(("topic", "done"), [(one.topic, _summary(one)) for one in done if not one.idle])
    if idle := sum(one.idle for one in done):
        print(f"nothing to do in {counted(idle, 'other topic')}")


def _summary(one: UpkeepResult) -> str:
    """Return what upkeep did to a topic, on one line."""
    parts = []
    if one.expired_records:
        parts.append(f"removed {counted(one.expired_records, 'old record')} ({size_of(one.expired_bytes)})")
    if one.compacted_records:
        parts.append(f"compacted {counted(one.compacted_records, 'record')} away")
    if one.spared_chunks:
        parts.append(f"left {counted(one.spared_chunks, 'chunk')} that cannot be read")
    if one.written_bytes:
        fewer = f" ({counted(one.merged_pages, 'page')} fewer)" if one.merged_pages else ""
        parts.append(f"wrote {size_of(one.written_bytes)} again{fewer}")
    if one.cleaned_chunks:
        parts.append(f"cleaned {counted(one.cleaned_chunks, 'chunk')} ({size_of(one.cleaned_bytes)})")
    return "; ".join(parts + (["not finished"] if one.error else []))
