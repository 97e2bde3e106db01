"""`tailrace xlog`: the commit log of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.pipeline.named_pipeline import PipelineArgument, message_as_json, pipeline_of, place
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_array, print_json, print_table
from tailrace.errors import BadInput

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.pipeline.operate.operator import Logged

app = new_group("The commit log of a pipeline: every message it has read.")


@command(app, "oldest")
def oldest(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Print the oldest offset that is kept, of each partition.

    Examples:

        tailrace xlog oldest shop
    """
    _ends(home, pipeline, 0, as_json)


@command(app, "current")
def current(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Print the offset of the newest message, of each partition.

    Examples:

        tailrace xlog current shop
    """
    _ends(home, pipeline, 1, as_json)


def _ends(url: str | None, pipeline: str, which: int, as_json: bool) -> None:
    from tailrace.pipeline.operate.operator import commit_log

    with pipeline_of(pipeline, url) as (here, name):
        ends = {q: both[which] - which for q, both in commit_log(here, name).ends().items()}
    if as_json:
        print_json({str(q): at for q, at in ends.items()})
    else:
        print_table(("partition", "offset"), ends.items())


@command(app, "show")
def show(
    pipeline: PipelineArgument,
    first: Annotated[
        str | None, typer.Argument(metavar="[FROM]", help="PARTITION:OFFSET of the first; none: all there are.")
    ] = None,
    last: Annotated[
        str | None, typer.Argument(metavar="[TO]", help="PARTITION:OFFSET of the last; none: only the first.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Print at most N messages.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print messages of the commit log, one JSON object a line; with --json as one array.

    Examples:

        tailrace xlog show shop
        tailrace xlog show shop 0:14
        tailrace xlog show shop 0:14 0:20 --json
    """
    with pipeline_of(pipeline, home) as (here, name):
        found = map(_shown, islice(_messages(here, name, first, last), count))
        if as_json:
            print_array(found)
            return
        for shown in found:
            print(shown)


def _messages(home: Home, pipeline: str, first: str | None, last: str | None) -> Iterator[Logged]:
    from tailrace.pipeline.operate.operator import commit_log, messages

    ends = commit_log(home, pipeline).ends()
    if first is None:
        return messages(home, pipeline, {q: a for q, (a, _) in ends.items()}, {q: b for q, (_, b) in ends.items()})
    (partition, start), (other, end) = place(first), place(last or first)
    if other != partition or end < start:
        raise BadInput(f"from {first} to {last}: both are of one partition, and the second is not before the first")
    return messages(home, pipeline, {partition: start}, {partition: end + 1})


def _shown(logged: Logged) -> str:
    shown = {"partition": logged.partition, "offset": logged.offset, **message_as_json(logged.message)}
    return json.dumps(shown, ensure_ascii=False)
