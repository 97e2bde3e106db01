"""`tailrace status` and `actions`: the status of pipelines, and the actions of operators on them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tailrace.cli.pipeline import commit_log, dead_letters, delivery, offsets
from tailrace.cli.pipeline.named_pipeline import PipelineArgument, pipeline_of
from tailrace.cli.pipeline.run_view import failures
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import ago, print_json, print_table, time_of
from tailrace.cli.shared.session import note, opened
from tailrace.errors import NotThere


def register(app: typer.Typer) -> None:
    """Add `tailrace status` and `tailrace actions`."""
    command(app, "status")(status)
    command(app, "actions")(actions)
    app.add_typer(commit_log.app, name="xlog")
    app.add_typer(offsets.app, name="offset")
    app.add_typer(dead_letters.app, name="dead")
    delivery.register(app, dead_letters.app)


def status(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="Only this pipeline, by its name or its file.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the status of pipelines, from any terminal.

    BEHIND is how many messages of the commit log a writer has yet to deliver, OLDEST how long the first of them has
    waited since it was written at the source.

    Examples:

        tailrace status
        tailrace status shop.py
        tailrace status shop --json
    """
    from tailrace.pipeline.operate import ledger

    if pipeline is None:
        found = []
        with opened(home) as here:
            for name in ledger.pipelines(here):
                try:
                    found.append(ledger.reported(here, name))
                except NotThere as error:  # it has none yet; the others are shown all the same
                    note(f"tailrace: {error}")
    else:
        with pipeline_of(pipeline, home) as (here, name):
            found = [ledger.reported(here, name)]
    if as_json:
        print_json(found if pipeline is None else found[0])
        return
    rows = [
        (s["pipeline"], s["state"], _ago(s["at"]), *_writer(name, w), _trouble(s, w))
        for s in found
        for name, w in s["sinks"].items()
    ]
    print_table(("pipeline", "state", "seen", "writer", "is", "rows", "behind", "oldest", "trouble"), rows)


def _writer(name: str, shown: dict[str, Any]) -> tuple[object, ...]:
    return name, shown["state"], shown["rows"], shown["lag"], ago(shown["age"])


def _trouble(status: dict[str, Any], writer: dict[str, Any]) -> str:
    """Return what is wrong with a writer, or with its run.  A run's error that repeats the error of a writer is shown
    only for that writer."""
    others = any(w["error"] and w["error"] in status["error"] for w in status["sinks"].values())
    told: str = writer["error"] or ("" if others else status["error"]) or writer.get("passed", "")
    return told or failures(writer)


def actions(pipeline: PipelineArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List what operators have done to a pipeline, with their names and reasons.

    Examples:

        tailrace actions shop
    """
    from tailrace.pipeline.operate import ledger, operator

    with pipeline_of(pipeline, home) as (here, name):
        operator.commit_log(here, name)
        found = ledger.notes(here, name)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            time_of(n["at"]),
            n["who"],
            n["what"],
            ", ".join(
                f"{k} {v}" for k, v in n.items() if k not in ("at", "who", "what", "why", "number") and v is not None
            ),
            n["why"],
        )
        for n in found
    ]
    print_table(("at", "who", "did", "to", "why"), rows)


def _ago(at: int) -> str:
    return f"{max(0, time.time() - at / 1000):.0f} s ago"
