"""`tailrace status`, `xlog`, `offset`, `dead`, `actions`: a pipeline's operator at work."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli import redeliver
from tailrace.cli.command import command
from tailrace.cli.options import HomeOption, JsonOption, YesOption
from tailrace.cli.redeliver import WhyOption, WriterArgument
from tailrace.cli.session import confirm, note, opened
from tailrace.cli.show import print_json, print_table, time_of
from tailrace.errors import BadInput

if TYPE_CHECKING:
    from tailrace.home import Home


def _name_of(given: str | None) -> str | None:
    """A pipeline's name, also by its file, as `run` takes it."""
    from pathlib import Path

    from tailrace.pipeline.pipeline import load

    if given is None or Path(given).suffix not in (".py", ".toml") or not Path(given).exists():
        return given
    return load(given).name


PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="The pipeline's name, or its file.", callback=_name_of)
]
PlaceArgument = Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="Which message.")]

xlog = typer.Typer(no_args_is_help=True, help="The commit log of a pipeline: every message it has read.")
offset = typer.Typer(no_args_is_help=True, help="What each writer of a pipeline has acknowledged.")
dead = typer.Typer(no_args_is_help=True, help="Messages that a writer could not take.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "status")(status)
    command(app, "actions")(actions)
    app.add_typer(xlog, name="xlog")
    app.add_typer(offset, name="offset")
    app.add_typer(dead, name="dead")
    redeliver.register(app, dead)


def place(text: str) -> tuple[int, int]:
    """A message's place: partition:offset."""
    partition, colon, at = text.partition(":")
    if not colon or not partition.isdigit() or not at.lstrip("-").isdigit():
        raise BadInput(f"a message is named PARTITION:OFFSET, like 0:14, not {text!r}")
    return int(partition), int(at)


def status(
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE]", help="Only this one, by name or file.", callback=_name_of),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how pipelines are, from any terminal.

    Examples:

        tailrace status
        tailrace status shop --json
    """
    from tailrace.pipeline import ledger

    with opened(home) as here:
        names = ledger.pipelines(here) if pipeline is None else [pipeline]
        found = [ledger.reported(here, name) for name in names]
    if as_json:
        print_json(found if pipeline is None else found[0])
        return
    rows = [
        (s["pipeline"], s["state"], _ago(s["at"]), name, w["state"], w["rows"], w["lag"], w["error"] or s["error"])
        for s in found
        for name, w in s["sinks"].items()
    ]
    print_table(("pipeline", "state", "seen", "writer", "is", "rows", "behind", "trouble"), rows)


def actions(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List what operators have done to a pipeline: who, and why.

    Examples:

        tailrace actions shop
    """
    from tailrace.pipeline import ledger, operator

    with opened(home) as here:
        operator.commit_log(here, pipeline)
        found = ledger.notes(here, pipeline)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            time_of(n["at"]),
            n["who"],
            n["what"],
            ", ".join(f"{k} {v}" for k, v in n.items() if k not in ("at", "who", "what", "why") and v is not None),
            n["why"],
        )
        for n in found
    ]
    print_table(("at", "who", "did", "to", "why"), rows)


def _ago(at: int) -> str:
    return f"{max(0, time.time() - at / 1000):.0f} s ago"


# --- the commit log ---------------------------------------------------------------------------------------------------
@command(xlog, "oldest")
def oldest(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Print the oldest offset that is kept, of each partition.

    Examples:

        tailrace xlog oldest shop
    """
    _ends(home, pipeline, 0, as_json)


@command(xlog, "current")
def current(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Print the offset of the newest message, of each partition.

    Examples:

        tailrace xlog current shop
    """
    _ends(home, pipeline, 1, as_json)


def _ends(url: str | None, pipeline: str, which: int, as_json: bool) -> None:
    from tailrace.pipeline.operator import commit_log

    with opened(url) as here:
        ends = {q: both[which] - which for q, both in commit_log(here, pipeline).ends().items()}
    if as_json:
        print_json({str(q): at for q, at in ends.items()})
    else:
        print_table(("partition", "offset"), ends.items())


@command(xlog, "show")
def show(
    pipeline: PipelineArgument,
    first: Annotated[str, typer.Argument(metavar="FROM", help="PARTITION:OFFSET of the first.")],
    last: Annotated[str | None, typer.Argument(metavar="[TO]", help="PARTITION:OFFSET of the last.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print messages of the commit log, one JSON object a line; with --json as one array.

    Examples:

        tailrace xlog show shop 0:14
        tailrace xlog show shop 0:14 0:20
    """
    from tailrace.adaptors.jsontext import finite
    from tailrace.pipeline.operator import messages

    (partition, start), (other, end) = place(first), place(last or first)
    if other != partition or end < start:
        raise BadInput(f"from {first} to {last}: both are of one partition, and the second is not before the first")
    with opened(home) as here:
        found = (_shown(m) for m in messages(here, pipeline, {partition: start}, {partition: end + 1}))
        if as_json:
            print(json.dumps(finite(list(found)), default=str, indent=2, ensure_ascii=False))
            return
        for shown in found:
            print(json.dumps(finite(shown), default=str, ensure_ascii=False))


def _shown(logged: Any) -> dict[str, Any]:
    m = logged.message
    return {
        "partition": logged.partition,
        "offset": logged.offset,
        "timestamp": m.timestamp,
        "mode": m.mode.name.lower(),
        "op": m.op.name.lower(),
        "namespace": m.namespace,
        "id": m.id,
        "data": m.data,
    }


# --- offsets ----------------------------------------------------------------------------------------------------------
@command(offset, "list")
def list_offsets(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the writers of a pipeline, and how far each is.

    Examples:

        tailrace offset list shop
    """
    from tailrace.pipeline import operator

    with opened(home) as here:
        ends = operator.commit_log(here, pipeline).ends()
        found = {name: operator.marks(here, pipeline, name) for name in operator.writers(here, pipeline)}
    rows = [
        (name, sum(m.low + 1 for m in marks.values()), sum(ends[q][1] - m.resume for q, m in marks.items()))
        for name, marks in found.items()
    ]
    if as_json:
        print_json([{"writer": w, "acknowledged": done, "pending": left} for w, done, left in rows])
    else:
        print_table(("writer", "acknowledged", "pending"), rows)


@command(offset, "show")
def show_offset(
    pipeline: PipelineArgument, writer: WriterArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Print what a writer has acknowledged, per partition; namespaces that are further on their own lines.

    Examples:

        tailrace offset show shop warehouse
    """
    from tailrace.pipeline import operator

    with opened(home) as here:
        marks = operator.marks(here, pipeline, writer)
    if as_json:
        print_json({str(q): {"low": m.low, "ahead": m.ahead} for q, m in marks.items()})
        return
    rows: list[tuple[int, str, int]] = []
    for q, m in marks.items():
        rows.append((q, "(all)", m.low))
        rows += [(q, namespace, at) for namespace, at in sorted(m.ahead.items())]
    print_table(("partition", "namespace", "offset"), rows)


@command(offset, "mark")
def mark(
    pipeline: PipelineArgument,
    writer: WriterArgument,
    message: PlaceArgument,
    why: WhyOption,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only of this namespace.")] = None,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count everything up to a message as delivered, without sending it; or, if lower, deliver again from there.

    The writer of a run under way is fenced: it stops, and the next run obeys.

    Examples:

        tailrace offset mark shop warehouse 0:15 --why "order 14 has no customer"
    """
    from tailrace.pipeline import operator

    partition, at = place(message)
    with opened(home) as here:
        before = operator.marks(here, pipeline, writer).get(partition)
        if before is not None and at < before.low:
            confirm(f"Deliver up to {before.low - at:,} messages of partition {partition} to {writer!r} again?", yes)
        after = operator.mark(here, pipeline, writer, partition, at, why, namespace)
    if as_json:
        print_json({str(partition): {"low": after.low, "ahead": after.ahead}})
    else:
        note(f"{writer}: everything up to {message} counts as delivered")


@command(offset, "delete")
def delete_offset(
    pipeline: PipelineArgument,
    writer: WriterArgument,
    why: WhyOption,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget what a writer has acknowledged: the next run delivers the whole commit log to it.

    Examples:

        tailrace offset delete shop warehouse --why "filled a new warehouse"
    """
    from tailrace.pipeline import operator

    with opened(home) as here:
        operator.marks(here, pipeline, writer)
        confirm(f"Deliver everything in the commit log of {pipeline!r} to {writer!r} again?", yes)
        operator.forget(here, pipeline, writer, why)
        after = operator.marks(here, pipeline, writer)
    if as_json:
        print_json({str(q): {"low": m.low, "ahead": m.ahead} for q, m in after.items()})


# --- dead letters -----------------------------------------------------------------------------------------------------
@command(dead, "list")
def list_dead(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List messages that writers could not take and passed.

    Examples:

        tailrace dead list shop
    """
    letters = _letters(home, pipeline)
    if as_json:
        print_json(letters)
        return
    rows = [
        (
            d["number"],
            time_of(d["at"]),
            d["writer"],
            f"{d['partition']}:{d['offset']}",
            d["namespace"],
            d["id"],
            d["error"],
        )
        for d in letters
    ]
    print_table(("number", "at", "writer", "message", "namespace", "id", "why"), rows)


def _letters(url: str | None, pipeline: str) -> list[dict[str, Any]]:
    from tailrace.pipeline import operator

    with opened(url) as here:
        return _checked(here, operator.dead(here, pipeline), pipeline)


def _checked(home: Home, letters: list[dict[str, Any]], pipeline: str) -> list[dict[str, Any]]:
    from tailrace.pipeline.operator import commit_log

    commit_log(home, pipeline)
    return letters


@command(dead, "show")
def show_dead(
    pipeline: PipelineArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `dead list` prints it.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a dead letter and the message it is about, as JSON.

    Examples:

        tailrace dead show shop 0
    """
    from tailrace.adaptors.jsontext import finite
    from tailrace.pipeline import operator

    with opened(home) as here:
        letter = next((d for d in operator.dead(here, pipeline) if d["number"] == number), None)
        if letter is None:
            raise BadInput(f"{pipeline!r} has no dead letter {number}; `tailrace dead list {pipeline}` lists them")
        at = {letter["partition"]: letter["offset"]}
        found = [_shown(m) for m in operator.messages(here, pipeline, at, {q: n + 1 for q, n in at.items()})]
    whole = finite({**letter, "message": found[0] if found else None})
    print(json.dumps(whole, default=str, indent=2, ensure_ascii=False))
