"""`tailrace events checkpoint`: shows how far the feed's consumer groups are, and moves them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, YesOption
from tailrace.cli.shared.output import ago, print_json, print_table
from tailrace.cli.shared.session import confirm, opened

if TYPE_CHECKING:
    from tailrace.feed.checkpoints import GroupCheckpoint

app = new_group("The stored checkpoints of the feed's consumers.")
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


@app.callback()
def checkpoint_commands(home: HomeOption = None) -> None:
    """The stored checkpoints of the feed's consumers."""


@command(app)
def show(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The group's name; none: all.")] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Show how far groups are: checkpoint, batches behind the tail, the member at work, its error.

    "last progress" is how long ago the group made progress or was at the tail: the longer, the worse.

    Examples:

        tailrace events checkpoint show
        tailrace events checkpoint show mailer --json | jq '.[0].partitions[0].behind'
    """
    with opened(home) as here:
        checkpoints = here.events().checkpoints
        found = checkpoints.list() if group is None else [checkpoints.show(group)]
    if json_too:
        print_json([asdict(one) for one in found])
        return
    rows: list[tuple[Any, ...]] = [
        (
            one.group,
            part.partition,
            str(part.checkpoint),
            str(part.tail),
            part.behind,
            one.dead_letters,
            part.member or "-",
            "-" if part.progress_age is None else f"{ago(max(part.progress_age, 0.1))} ago",
            part.error or "-",
        )
        for one in found
        for part in one.partitions
    ]
    names = ("group", "partition", "checkpoint", "tail", "behind", "dead letters", "member", "last progress", "error")
    print_table(names, rows)


@command(app)
def reset(group: GroupArgument, yes: YesOption = False, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Move a group back to the first event.  A running consumer continues from there, too.

    Examples:

        tailrace events checkpoint reset mailer
    """
    with opened(home) as here:
        checkpoints = here.events().checkpoints
        checkpoints.show(group)
        confirm(f"Handle every event again, in group {group!r}?", yes)
        checkpoints.reset(group)
        _answer(checkpoints.show(group), f"group {group!r} begins with the first event again", json_too)


@command(app)
def override(
    group: GroupArgument,
    checkpoint: Annotated[int, typer.Argument(metavar="CHECKPOINT", help="The checkpoint to continue from.", min=0)],
    partition: Annotated[int, typer.Option("--partition", metavar="N", help="The feed's partition.", min=0)] = 0,
    yes: YesOption = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Move a group to a checkpoint, back or forward.  A running consumer continues from there, too.

    Examples:

        tailrace events checkpoint override mailer 4000017
    """
    with opened(home) as here:
        checkpoints = here.events().checkpoints
        now = {part.partition: part.checkpoint for part in checkpoints.show(group).partitions}.get(partition)
        what = "skips what is between" if now is not None and checkpoint > now else "handles what is between again"
        confirm(f"Put group {group!r} from checkpoint {now} to {checkpoint}? It {what}.", yes)
        checkpoints.override(group, checkpoint, partition=partition)
        _answer(checkpoints.show(group), f"group {group!r} goes on at checkpoint {checkpoint}", json_too)


def _answer(now: GroupCheckpoint, text: str, json_too: bool) -> None:
    if json_too:
        print_json(asdict(now))
    else:
        print(text)


def register(events: typer.Typer) -> None:
    """Add the commands to the group of the event store."""
    events.add_typer(app, name="checkpoint")
