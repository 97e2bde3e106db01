"""`tailrace step` and `dead retry`: an operator delivers messages by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.pipeline.named_pipeline import message_as_json, message_as_text
from tailrace.cli.pipeline.run import FileArgument, loaded
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_json
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.pipeline.operate.step import Stepped

WhyOption = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason, which the pipeline keeps.", prompt=True)
]
WriterArgument = Annotated[str, typer.Argument(metavar="WRITER", help="The writer's name.")]


def register(app: typer.Typer, dead: typer.Typer) -> None:
    """Add `tailrace step` and `dead retry`."""
    command(app, "step")(step)
    command(dead, "retry")(retry)


def step(
    file: FileArgument,
    writer: WriterArgument,
    why: WhyOption,
    count: Annotated[int, typer.Option("--count", "-n", help="Deliver N messages.", min=1)] = 1,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver the next messages to a writer, one at a time, and print the outcome of each; no run may be under way.

    It ends after a message that fails.  Exit codes: 0 all were delivered or filtered, or none is pending; 1 one failed.

    Examples:

        tailrace step shop.py warehouse --why "order 14 is mended"
        tailrace step shop.py warehouse --count 10 --why "looking"
    """
    from tailrace.pipeline.operate.step import step as steps

    if not _print(steps(loaded(file, home), writer, count, why), as_json) and not as_json:
        print(f"nothing is pending for {writer}")


def retry(
    file: FileArgument,
    why: WhyOption,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[NUMBER]…", help="The numbers that `dead list` prints; without any, all."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver dead letters once more; no run may be under way.

    A dead letter is no longer listed once it is delivered, or once its document has been delivered since.

    Examples:

        tailrace dead retry shop.py 0 3 --why "the sink has the column now"
        tailrace dead retry shop.py --why "all of them"
    """
    from tailrace.pipeline.operate.dead_retry import retry as again

    if not _print(again(loaded(file, home), numbers or [], why), as_json) and not as_json:
        print("there are no dead letters")


def _print(done: Iterator[Stepped], as_json: bool) -> int:
    """Print the outcome of each message, and return how many there were; raise if one has failed."""
    shown: list[dict[str, Any]] = []
    for one in done:
        m = one.logged.message
        place = f"{one.logged.partition}:{one.logged.offset}"
        outcome = {n: v for n, v in message_as_json(m).items() if n in ("namespace", "id", "op")}
        shown.append({"message": place, **outcome, "outcome": one.outcome, "error": one.error})
        if not as_json:
            why = f": {one.error}" if one.error else ""
            print(f"{place}  {message_as_text(m)}  {one.outcome}{why}", flush=True)
    if as_json:
        print_json(shown)
    if shown and any(one["outcome"] == "failed" for one in shown):
        raise TailraceError(f"{sum(one['outcome'] == 'failed' for one in shown)} of {len(shown)} messages failed")
    return len(shown)
