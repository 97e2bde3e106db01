"""`tailrace`: the entry of the command line.

Exit codes: 0 done; 1 refused, failed or aborted, with one line on stderr; 2 used wrongly; 3 a scrub or the check of a
copy found damage, or an index differs from its events; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated

import typer

from tailrace._version import __version__
from tailrace.cli.shared.command import in_panels
from tailrace.cli.shared.options import HomeOption
from tailrace.errors import TailraceError

PANELS = {
    "Ways to use the log": ("topic", "group", "events", "queue", "stream", "spark"),
    "Pipelines": ("init", "about", "test", "run", "status", "step", "actions", "xlog", "offset", "dead"),
    "The home": ("home", "serve", "doctor", "metrics", "upkeep", "scrub"),
}
EPILOG = "`tailrace doctor` tells whether all is well; every command has examples in its own --help."


# --- groups of commands, each imported only when it is needed ---------------------------------------------------------
def _package(name: str) -> Callable[[], typer.Typer]:
    """Return a function that imports a group that is a package."""

    @cache
    def load() -> typer.Typer:
        group: typer.Typer = import_module(f"tailrace.cli.{name}").group()
        return group

    return load


def _module(name: str) -> Callable[[], typer.Typer]:
    """Return a function that imports a group that is a module of its own."""

    def load() -> typer.Typer:
        app: typer.Typer = import_module(f"tailrace.cli.{name}").app
        return app

    return load


GROUPS: dict[str, Callable[[], typer.Typer]] = {
    "topic": _package("topic"), "group": _module("group"), "events": _package("events"), "stream": _module("stream"),
    "queue": _package("queue"), "home": _module("home.homes"), "upkeep": _module("home.upkeep"),
    "spark": _module("spark"),
}  # fmt: skip
APPS = {"topic": "topic.topics", "events": "events.event_streams", "queue": "queue.queues"}
"""The modules with the `app` of a group that is a package."""
MODULES = {
    "pipeline.trial": ("init", "about", "test"), "pipeline.run": ("run",),
    "pipeline.status": ("status", "actions", "xlog", "offset", "dead", "step"), "home.metrics": ("metrics",),
    "home.serve": ("serve",), "home.doctor": ("doctor",), "home.scrub": ("scrub",),
}  # fmt: skip
"""Modules that register commands of the first level, and the names of these commands."""


def _outline(name: str) -> typer.Typer:
    """Return a group without its commands."""
    module = APPS.get(name)
    app = GROUPS[name]() if module is None else import_module(f"tailrace.cli.{module}").app
    return typer.Typer(help=app.info.help)


def build(command: str | None = None, *, outline: bool = False) -> typer.Typer:
    """Build the command line: all of it, or the part that one command needs, which takes half as long; or its outline,
    groups without their commands, which is all that the help of `tailrace` shows."""
    app = typer.Typer(
        name="tailrace",
        no_args_is_help=True,
        cls=in_panels(PANELS),
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        epilog=EPILOG,
    )
    app.callback()(root)
    whole = not any(command in names for names in PANELS.values())
    for name, load in GROUPS.items():
        if whole or name == command:
            app.add_typer(_outline(name) if outline else load(), name=name)
    for module, names in MODULES.items():
        if whole or command in names:
            import_module(f"tailrace.cli.{module}").register(app)
    return app


def command_in(words: Sequence[str]) -> str | None:
    """Return the command that a command line names; None if it names none, or asks for help before a command."""
    left = iter(words)
    for word in left:
        if word == "--home":
            next(left, None)
        elif word in ("-h", "--help"):
            return None
        elif not word.startswith("-"):
            return word
    return None


def asks_for_outline(words: Sequence[str]) -> bool:
    """Return whether a command line asks for the help, or the version, of `tailrace` itself."""
    return command_in(words) is None and not {"-h", "--help", "--version"}.isdisjoint(words)


def _version(asked: bool) -> None:
    if asked:
        print(f"tailrace {__version__}")
        raise typer.Exit


def root(
    home: HomeOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """One durable, ordered log of everything that happens: on a laptop's disk, or on S3 and DynamoDB."""


def main() -> None:
    """Run the command line; print an error of tailrace as one line on stderr."""
    try:
        words = sys.argv[1:]
        build(command_in(words), outline=asks_for_outline(words))()
    except TailraceError as error:
        print(f"tailrace: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except MemoryError as error:
        print(f"tailrace: there is not enough memory for this: {error or 'no more is given'}", file=sys.stderr)
        sys.exit(1)
