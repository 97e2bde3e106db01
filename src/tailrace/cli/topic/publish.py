"""`tailrace topic publish`: a topic as a table of a lake."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, TopicArgument
from tailrace.cli.shared.output import counted, print_json
from tailrace.cli.shared.session import opened
from tailrace.errors import BadInput


def publish(
    topic: TopicArgument,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="A folder, or s3://bucket/prefix, gs://…, az://….")],
    kind: Annotated[str, typer.Option("--as", metavar="FORMAT", help="The tables' format: delta.")] = "delta",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the sink (`tailrace about delta`); may be repeated."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Repeat at this interval, until Ctrl-C: 30s, 5m, 1h.")
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Skip records that retention removed before they were published."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a topic's records to a table that DuckDB, Polars and Spark read, each record once.

    The table is a folder of the path, named after the topic. The table stores how far it has the topic, so the command
    may be stopped at any time and run again: it adds the records that have come since.

    Examples:

        tailrace topic publish orders --as delta --to ./lake
        tailrace topic publish orders --as delta --to s3://bucket/lake --every 5m
        tailrace topic publish orders --to s3://bucket/lake --set 'storage_options={"AWS_REGION": "eu-west-1"}'
    """
    pause = values.seconds(every) if every is not None else None
    with opened(home) as here:
        chosen = here.topic(topic)
        from tailrace.adaptors.registry import located
        from tailrace.pipeline.publish.publication import Publication

        given: dict[str, Any] = {**values.settings(settings), "path": located(to, ".")}
        if "path" in values.settings(settings):
            raise BadInput("the path is given by --to")
        with closing(Publication(chosen, kind, given, skip_lost=skip_lost)) as publication:
            while True:
                done = publication.run()
                if as_json:
                    print_json({**asdict(done), "topic": topic, "to": to})
                else:
                    commits = f" in {counted(done.commits, 'commit')}" if done.commits else ""
                    print(f"added {counted(done.records, 'record')} of {topic!r}{commits} to {to}")
                if pause is None:
                    return
                time.sleep(pause)


def register(app: typer.Typer) -> None:
    """Add `tailrace topic publish`."""
    command(app)(publish)
