"""`tailrace queue dead`: lists the dead letters of a queue, shows one, and puts some back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.queue.stats import QueueArgument
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import counted, json_of, print_facts, print_json, print_table, text_of, time_of
from tailrace.cli.shared.session import opened
from tailrace.errors import BadInput

if TYPE_CHECKING:
    from tailrace.queue import DeadLetter


def register(app: typer.Typer) -> None:
    """Add `tailrace queue dead`."""
    command(app)(dead)


def dead(
    queue: QueueArgument,
    show: Annotated[
        int | None, typer.Option("--show", metavar="N", help="Print the whole dead letter with this number.")
    ] = None,
    requeue: Annotated[
        list[int] | None,
        typer.Option("--requeue", metavar="N", help="Put the dead letter with this number back into the queue."),
    ] = None,
    all_of_them: Annotated[
        bool, typer.Option("--requeue-all", help="Put all dead letters back into the queue.")
    ] = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """List the dead letters of a queue, with the reason; or put some back into it.

    Examples:

        tailrace queue dead emails
        tailrace queue dead emails --show 3
        tailrace queue dead emails --requeue 3 --requeue 4
        tailrace queue dead emails --requeue-all
    """
    with opened(home) as here:
        chosen = here.queue(queue)
        chosen.topic()
        if requeue or all_of_them:
            count = chosen.requeue(*(requeue or ()))
            print_json({"requeued": count}) if json_too else print(f"put {counted(count, 'message')} back")
            return
        letters = [one for one in chosen.dead() if show in (None, one.number)]
    if show is not None and not letters:
        raise BadInput(f"queue {queue!r} has no dead letter {show}; `tailrace queue dead {queue}` lists them")
    if json_too:
        every = [_letter(one) for one in letters]
        print_json(every if show is None else every[0])
    elif show is not None:
        print_facts(_facts(letters[0]))
    else:
        _print_letters(letters)


def _letter(one: DeadLetter) -> dict[str, Any]:
    return {**one._asdict(), "message": json_of(one.message), "shard_key": json_of(one.shard_key)}


def _facts(one: DeadLetter) -> list[tuple[str, str]]:
    """Return the facts about one dead letter."""
    return [
        ("number", f"{one.number}{', put back' if one.requeued else ''}"),
        ("message", f"{one.shard}:{one.offset}"),
        ("shard key", text_of(one.shard_key)),
        ("pushed", time_of(one.pushed)),
        ("died", f"{time_of(one.died)}{f', given up by {one.consumer}' if one.consumer else ''}"),
        ("attempts", str(one.attempts)),
        ("reason", one.reason),
        ("content", text_of(one.message)),
    ]


def _print_letters(letters: list[DeadLetter]) -> None:
    """Print a table of the dead letters that were not put back, and below it how many were."""
    rows = [
        (one.number, f"{one.shard}:{one.offset}", one.attempts, one.reason, text_of(one.message))
        for one in letters
        if not one.requeued
    ]
    if rows:
        print_table(("number", "message", "attempts", "reason", "content"), rows)
    back = len(letters) - len(rows)
    more = f"{counted(back, 'dead letter')} put back before" if back else ""
    if more or not rows:
        print(", ".join(filter(None, ["" if rows else "no dead letters", more])))
