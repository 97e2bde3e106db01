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
    checkpoint,
    cost,
    doctor,
    events,
    feed,
    group,
    home,
    metrics,
    operate,
    pipeline,
    queue,
    queue_dead,
    queue_stats,
    reading,
    run,
    scrub,
    serve,
    spark,
    stream,
    topic,
    transfer,
    upkeep,
    work,
)
from tailrace.cli.command import in_panels
from tailrace.cli.options import HomeOption
from tailrace.errors import TailraceError

PANELS = {
    "Ways to use the log": ("topic", "group", "events", "queue", "stream", "spark"),
    "Pipelines": ("init", "about", "test", "run", "status", "step", "actions", "xlog", "offset", "dead"),
    "The home": ("home", "serve", "doctor", "metrics", "upkeep", "scrub"),
}

app = typer.Typer(
    name="tailrace",
    no_args_is_help=True,
    cls=in_panels(PANELS),
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
feed.register(events.app)
checkpoint.register(events.app)
app.add_typer(events.app, name="events")
app.add_typer(stream.app, name="stream")
queue_stats.register(queue.app)
work.register(queue.app)
queue_dead.register(queue.app)
queue.in_reading_order()
app.add_typer(queue.app, name="queue")
app.add_typer(home.app, name="home")
app.add_typer(upkeep.app, name="upkeep")
app.add_typer(spark.app, name="spark")
pipeline.register(app)
run.register(app)
operate.register(app)
metrics.register(app)
serve.register(app)
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
    except MemoryError as error:
        print(f"tailrace: there is not enough memory for this: {error or 'no more is given'}", file=sys.stderr)
        sys.exit(1)
