"""`tailrace offset`: what each writer of a pipeline has acknowledged in its commit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.pipeline.delivery import WhyOption, WriterArgument
from tailrace.cli.pipeline.named_pipeline import PipelineArgument, pipeline_of, place
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, YesOption
from tailrace.cli.shared.output import print_json, print_table
from tailrace.cli.shared.session import confirm, note

if TYPE_CHECKING:
    from tailrace.pipeline.deliver.offsets import Mark

PlaceArgument = Annotated[
    str, typer.Argument(metavar="PARTITION:OFFSET", help="The message, as `xlog show` prints it.")
]

app = new_group("What each writer of a pipeline has acknowledged.")


@command(app, "list")
def list_offsets(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the writers of a pipeline: how many messages each has acknowledged, and how many are pending.

    Examples:

        tailrace offset list shop
    """
    from tailrace.pipeline.operate import operator

    with pipeline_of(pipeline, home) as (here, name):
        ends = operator.commit_log(here, name).ends()
        found = {writer: operator.marks(here, name, writer) for writer in operator.writers(here, name)}
    rows = [
        (writer, sum(m.resume for m in marks.values()), sum(max(0, ends[q][1] - m.resume) for q, m in marks.items()))
        for writer, marks in found.items()
    ]
    if as_json:
        print_json([{"writer": w, "acknowledged": done, "pending": left} for w, done, left in rows])
    else:
        print_table(("writer", "acknowledged", "pending"), rows)


@command(app, "show")
def show_offset(
    pipeline: PipelineArgument, writer: WriterArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Print what a writer has acknowledged: the last message up to which it has everything, of each namespace.

    A message is named PARTITION:OFFSET, as `xlog show` and `offset mark` take it; -1 is before the first.

    Examples:

        tailrace offset show shop warehouse
    """
    from tailrace.pipeline.operate import operator

    with pipeline_of(pipeline, home) as (here, name):
        marks = operator.marks(here, name, writer)
        namespaces = sorted({*operator.namespaces(here, name), *(n for m in marks.values() for n in m.ahead)})
    if as_json:
        print_json({str(q): _as_json(m, namespaces) for q, m in marks.items()})
        return
    rows = [(namespace, f"{q}:{m.reached(namespace)}") for namespace in namespaces for q, m in marks.items()]
    print_table(("namespace", "acknowledged"), rows)


def _as_json(mark: Mark, namespaces: Sequence[str] = ()) -> dict[str, Any]:
    shown = {"low": mark.low, "ahead": mark.ahead}
    return {**shown, "namespaces": {name: mark.reached(name) for name in namespaces}} if namespaces else shown


@command(app, "mark")
def mark(
    pipeline: PipelineArgument,
    writer: WriterArgument,
    message: PlaceArgument,
    why: WhyOption,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only for this namespace.")] = None,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count everything up to a message as delivered, without sending it; or, if lower, deliver again from there.

    This fences the writer of a run under way: the writer stops, and the next run starts from the mark.

    Examples:

        tailrace offset mark shop warehouse 0:15 --why "order 14 has no customer"
    """
    from tailrace.pipeline.operate import operator

    partition, at = place(message)
    with pipeline_of(pipeline, home) as (here, name):
        before = operator.marks(here, name, writer).get(partition)
        if before is not None and at < before.low:
            confirm(f"Deliver up to {before.low - at:,} messages of partition {partition} to {writer!r} again?", yes)
        after = operator.mark(here, name, writer, partition, at, why, namespace)
    if as_json:
        print_json({str(partition): _as_json(after)})
    else:
        note(f"{writer}: everything up to {message} counts as delivered")


@command(app, "delete")
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
    from tailrace.pipeline.operate import operator

    with pipeline_of(pipeline, home) as (here, name):
        operator.marks(here, name, writer)
        confirm(f"Deliver everything in the commit log of {name!r} to {writer!r} again?", yes)
        operator.forget(here, name, writer, why)
        after = operator.marks(here, name, writer)
    if as_json:
        print_json({str(q): _as_json(m) for q, m in after.items()})
