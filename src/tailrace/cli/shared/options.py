"""Options and arguments that many commands have, and how the shell completes them."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Any

import typer

from tailrace.errors import TailraceError


def _chosen(context: typer.Context, given: str | None) -> str:
    """Return the home's URL: as given here, or before the command, or by the environment; "" for the default."""
    above: Any = context.parent
    while not given and above is not None:
        given, above = above.params.get("home"), above.parent
    return given or os.environ.get("TAILRACE_HOME", "")


def _given(context: typer.Context, given: str | None) -> str:
    """Return the home's URL as given here or before the command; "" if only the environment names one, or none is
    named."""
    above: Any = context.parent
    while not given and above is not None:
        there, above = above.params.get("home"), above.parent
        given = there if there != os.environ.get("TAILRACE_HOME") else None  # `_chosen` has put it there
    return given or ""


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return topic names for the shell's completion; none if the home cannot be opened."""
    from tailrace.cli.shared.session import opened

    try:
        with opened(_chosen(context, context.params.get("home"))) as home:
            return [name for name in home.topics() if name.startswith(incomplete)]
    except TailraceError:
        return []


def complete_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return names of tables for the shell's completion."""
    from tailrace.cli.shared.session import opened

    try:
        with opened(_chosen(context, context.params.get("home"))) as home:
            return [name for name in home.engine().tables() if name.startswith(incomplete)]
    except TailraceError:
        return []


def _groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return group names for the shell's completion."""
    from tailrace.cli.shared.session import opened
    from tailrace.log.groups.group import groups

    try:
        with opened(_chosen(context, context.params.get("home"))) as home:
            return sorted({name for name, *_ in home.store.run(groups()) if name.startswith(incomplete)})
    except TailraceError:
        return []


class PrintFormat(StrEnum):
    """A format in which records are written."""

    text = "text"
    json = "json"
    jsonl = "jsonl"
    arrow = "arrow"
    parquet = "parquet"


HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="URL",
        callback=_chosen,
        show_default=False,
        help="Folder or URL of the home.  [env: TAILRACE_HOME; default: ./.tailrace]".replace("[", r"\["),
    ),
]
GivenHomeOption = Annotated[
    str | None,
    typer.Option("--home", metavar="URL", callback=_given, show_default=False, help="Folder or URL of the home."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topics)
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only for this topic.", autocompletion=complete_topics)
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", autocompletion=_groups)]
PartitionOption = Annotated[int | None, typer.Option("--partition", metavar="N", help="Only this partition.")]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic; may be repeated.")
]
