"""`tailrace scrub`: is all of it still what was written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli import values
from tailrace.cli.command import command
from tailrace.cli.options import HomeOption, JsonOption
from tailrace.cli.progress import Bar
from tailrace.cli.session import opened
from tailrace.cli.show import counted, emit, print_json, size_of

if TYPE_CHECKING:
    from tailrace.whole.report import Report

DAMAGED = 3
"""The exit code when something is damaged."""

TopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Only these topics.", show_default=False)
]
SampleOption = Annotated[
    str, typer.Option("--sample", metavar="N%", help="Read the bytes of so many of the chunks, drawn at random.")
]


def scrub(
    topics: TopicsArgument = None, sample: SampleOption = "100%", home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Read everything again and compare it with what was written: is it all there, is it still the same?

    It can run at any time, beside everything else, and changes nothing.  Each damage is named, with topic, partition,
    offsets, object and byte; the exit code is then 3.  Chunks that nothing refers to are counted, and are no damage.

    Examples:

        tailrace scrub
        tailrace scrub orders clicks
        tailrace scrub --sample 5%
        tailrace scrub --json | jq '.damages[]'
    """
    from tailrace.whole.scrub import size

    part = values.share(sample)
    with opened(home) as here:
        began = time.monotonic()
        with Bar("scrubbing", int(size(here.store, topics) * part)) as bar:
            report = here.scrub(topics or None, sample=part, told=bar.advance)
        seconds = time.monotonic() - began
    if as_json:
        print_json({**report.as_json(), "seconds": round(seconds, 3)})
    else:
        show(report, seconds)
    if not report.clean:
        raise typer.Exit(DAMAGED)


def show(report: Report, seconds: float) -> None:
    """A report for people: what was read, what else there is, and the damage last."""
    from rich.text import Text

    read = report.found
    speed = f", {size_of(read.bytes / seconds)}/s" if seconds >= 1 else ""
    where = f"{counted(read.chunks, 'chunk')} of {counted(report.topics, 'topic')}"
    print(f"read {counted(read.records, 'record')} in {where}, {size_of(read.bytes)}{speed}")
    if report.unread:
        print(f"not in the sample: {counted(report.unread, 'chunk')}, which are there")
    others = ((report.groups, "group"), (report.producers, "named producer"), (report.streams, "stream"))
    if looked := [counted(count, noun) for count, noun in others if count]:
        print(f"looked at {', '.join(looked)}")
    if report.orphans:
        size = size_of(report.orphan_bytes)
        print(f"{counted(report.orphans, 'chunk')} ({size}) left behind; cleaning removes what nothing refers to")
    if report.pending:
        print(f"{counted(report.pending, 'chunk')} being appended, or replaced and not cleaned yet")
    for note in report.notes:
        emit(Text.assemble(("! ", "yellow"), note))
    for damage in report.damages:
        emit(Text.assemble(("✗ ", "red"), str(damage)))
    if report.clean:
        emit(Text.assemble(("✓ ", "green"), "no damage"))
    else:
        emit(Text(f"{counted(len(report.damages), 'damage')}; the rest can be read", style="red"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(scrub)
