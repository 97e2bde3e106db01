"""`tailrace`: where the command line begins, and how it ends.

Exit codes: 0 done; 1 refused, failed or aborted, with one line on stderr; 2 used wrongly; 3 a scrub found damage;
130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailrace._version import __version__
from tailrace.cli import (
    append,
    cost,
    doctor,
    events,
    group,
    home,
    operate,
    pipeline,
    reading,
    run,
    scrub,
    spark,
    topic,
    transfer,
    upkeep,
)
from tailrace.cli.options import HomeOption
from tailrace.errors import TailraceError

app = typer.Typer(
    name="tailrace",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="`tailrace doctor` tells whether all is well; every command has examples in its own --help.",
)
append.register(topic.app)
reading.register(topic.app)
transfer.register(topic.app)
scrub.register_topic(topic.app)
cost.register(topic.app)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(events.app, name="events")
app.add_typer(home.app, name="home")
app.add_typer(upkeep.app, name="upkeep")
app.add_typer(spark.app, name="spark")
pipeline.register(app)
run.register(app)
operate.register(app)
doctor.register(app)
scrub.register(app)


def _version(asked: bool) -> None:
    if asked:
        print(f"tailrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    home: HomeOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """One durable, ordered log of everything that happens: on a laptop's disk, or on S3 and DynamoDB."""


def main() -> None:
    """Run the command line; an error of tailrace's is one line on stderr."""
    try:
        app()
    except TailraceError as error:
        print(f"tailrace: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
