"""`tailrace dead`: the dead letters of a pipeline."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tailrace.cli.pipeline.named_pipeline import PipelineArgument, message_as_json, pipeline_of
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_facts, print_json, print_table, time_of

app = new_group("Messages that a writer could not take.")


@command(app, "list")
def list_dead(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the messages that writers have put aside.

    Examples:

        tailrace dead list shop
    """
    from tailrace.pipeline.operate import operator

    with pipeline_of(pipeline, home) as (here, name):
        operator.commit_log(here, name)
        letters = operator.dead(here, name)
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


@command(app, "show")
def show_dead(
    pipeline: PipelineArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The number that `dead list` prints.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a dead letter with its message.

    Examples:

        tailrace dead show shop 0
        tailrace dead show shop 0 --json
    """
    from tailrace.pipeline.operate import operator

    with pipeline_of(pipeline, home) as (here, name):
        letter, message = operator.dead_one(here, name, number)
        whole = {**letter, "message": message_as_json(message)}
    if as_json:
        print_json(whole)
        return
    facts = {**whole, "at": time_of(letter["at"]), "message": f"{letter['partition']}:{letter['offset']}"}
    print_facts([(n, facts[n]) for n in ("number", "at", "writer", "message", "namespace", "id", "error")])
    print()
    print(json.dumps(whole["message"], indent=2, ensure_ascii=False))
