"""`tailrace scrub`: reads a home again and reports damage; also quarantines damaged offsets and lifts quarantines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, PartitionOption, TopicArgument, YesOption
from tailrace.cli.shared.output import counted, emit, print_json, print_table, size_of, time_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import confirm, note, opened

if TYPE_CHECKING:
    from tailrace.admin.report import Report
    from tailrace.home import Home
    from tailrace.log.integrity.quarantine import PassedOffsets

DAMAGED = 3
"""The exit code when something is damaged."""

TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Read only these topics; by default, all.", show_default=False),
]
SampleOption = Annotated[
    str, typer.Option("--sample", metavar="N%", help="Read the bytes of this share of the chunks, drawn at random.")
]


def scrub(
    topics: TopicsArgument = None,
    sample: SampleOption = "100%",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Let readers pass over the lost records; asks first.")
    ] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="The reason, which is kept with the quarantine.")
    ] = "",
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read everything again and compare it with what was written: is it all there, is it still the same?

    It can run at any time, beside everything else, and changes nothing.  Each damage is named, with topic, partition,
    offsets, object and byte; the exit code is then 3.  Chunks that nothing refers to are counted, and are no damage.

    Examples:

        tailrace scrub
        tailrace scrub orders clicks
        tailrace scrub --sample 5%
        tailrace scrub --json | jq '.damages[]'
        tailrace scrub orders --quarantine --why 'disk of 3 May'
    """
    from tailrace.admin.scrub import size

    part = values.share(sample)
    with opened(home) as here:
        began = time.monotonic()
        with Bar("scrubbing", int(size(here.store, topics) * part)) as bar:
            report = here.scrub(topics or None, sample=part, told=bar.advance)
        seconds = time.monotonic() - began
        if not as_json:
            show(report, seconds)
        passed = keep_apart(here, report, why, yes) if quarantine else 0
    if as_json:
        more = {"quarantined": passed} if quarantine else {}
        print_json({**report.as_json(), "seconds": round(seconds, 3), **more})
    if not report.clean:
        raise typer.Exit(DAMAGED)


def keep_apart(home: Home, report: Report, why: str, yes: bool) -> int:
    """Quarantine the lost offsets, after asking; return how many ranges of offsets."""
    lost = [damage for damage in report.damages if damage.topic and damage.lost]
    count = sum(end - first for damage in lost for _, first, end in damage.lost)
    if not lost:
        note("nothing to quarantine")
        return 0
    confirm(f"Let readers pass {counted(count, 'lost record')}? `tailrace topic lift TOPIC` takes it back", yes)
    passed = 0
    for damage in lost:
        passed += home.topic(damage.topic).quarantine(damage.lost, why or damage.text, where=damage.where)
    note(f"readers pass {counted(count, 'lost record')} from now on, and say so")
    return passed


def quarantined(topic: TopicArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the damaged offsets that readers of a topic pass over, and the user that decided so, when and why.

    Examples:

        tailrace topic quarantined orders
    """
    with opened(home) as here:
        found = here.topic(topic).quarantined()
    if as_json:
        print_json([one_of(p) for p in found])
    elif found:
        rows = [(p.partition, p.first, p.end - 1, p.who, time_of(p.at), p.why) for p in found]
        print_table(("partition", "first", "last", "who", "when", "why"), rows)
    else:
        print(f"nothing of {topic!r} is quarantined")


def lift(
    topic: TopicArgument,
    partition: PartitionOption = None,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lift a topic's quarantine: readers get an error again where records are damaged, or the records, if they were
    restored.

    Examples:

        tailrace topic lift orders
        tailrace topic lift orders --partition 3 --yes
    """
    with opened(home) as here:
        chosen = here.topic(topic)
        count = len([p for p in chosen.quarantined() if partition in (None, p.partition)])
        confirm(f"Lift {counted(count, 'quarantine')} of {topic!r}?", yes)
        gone = chosen.lift(partition)
    if as_json:
        print_json([one_of(p) for p in gone])
    else:
        print(f"lifted {counted(len(gone), 'quarantine')} of {topic!r}")


def one_of(passed: PassedOffsets) -> dict[str, Any]:
    """Return a quarantine as --json prints it."""
    import msgspec

    fields = msgspec.to_builtins(passed)
    return {"partition": fields.pop("partition"), "first": fields.pop("first"), "last": fields.pop("end") - 1, **fields}


def show(report: Report, seconds: float) -> None:
    """Print a report for people: what was read, other notes, and the damage last."""
    from rich.text import Text

    read = report.found
    speed = f", {size_of(read.bytes / seconds)}/s" if seconds >= 1 else ""
    where = f"{counted(read.chunks, 'chunk')} of {counted(report.topics, 'topic')}"
    most = "at most " if read.at_most else ""
    print(f"read {most}{counted(read.records, 'record')} in {where}, {size_of(read.bytes)}{speed}")
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
    for text in report.notes:
        emit(Text.assemble(("! ", "yellow"), text))
    for damage in report.damages:
        emit(Text.assemble(("✗ ", "red"), str(damage)))
    if report.clean:
        emit(Text.assemble(("✓ ", "green"), "no damage"))
    else:
        emit(Text(f"{counted(len(report.damages), 'damage')}; the rest can be read", style="red"))


def register(app: typer.Typer) -> None:
    """Add `tailrace scrub`."""
    command(app)(scrub)


def register_topic(app: typer.Typer) -> None:
    """Add `tailrace topic quarantined` and `lift`."""
    command(app)(quarantined)
    command(app)(lift)
