"""`tailrace queue`: queues, their messages, and the consumers that handle the messages."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.queue.stats import QueueArgument, age, as_json
from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, SettingsOption, YesOption
from tailrace.cli.shared.output import (
    counted,
    json_of,
    print_json,
    print_table,
    text_of,
    time_of,
)
from tailrace.cli.shared.session import confirm, note, opened
from tailrace.errors import BadInput, nearest

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.queue import Queue

app = new_group("Queues, their messages, and the consumers that handle these.")
ShardsOption = Annotated[
    int | None, typer.Option("--shards", metavar="N", help="The number of shards; 24 for a new queue.")
]


ORDER = (
    "create", "list", "push", "tail", "work", "stats", "pause", "play",
    "rebalance", "replay", "dead", "explain", "purge", "delete",
)  # fmt: skip
"""The order in which --help lists the commands: as a newcomer needs them."""


def in_reading_order() -> None:
    """Sort the commands of `tailrace queue`, once all are registered."""
    app.registered_commands.sort(key=lambda one: ORDER.index(one.name or getattr(one.callback, "__name__", "")))


@app.callback()
def queues(home: HomeOption = None) -> None:
    """Queues, their messages, and the consumers that handle these."""


@command(app)
def create(
    queue: QueueArgument,
    shards: ShardsOption = None,
    settings: SettingsOption = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Create a queue.  A push to a new queue creates it, too, with 24 shards.

    Examples:

        tailrace queue create emails
        tailrace queue create emails --shards 6 --set attempts=3 --set backoff=2
    """
    with opened(home, make=True) as here:
        if queue in here.queues():
            raise BadInput(f"queue {queue!r} exists already; `tailrace queue stats {queue}` shows it")
        made = here.queue(queue)
        made.make(shards, **{name: _number(value) for name, value in values.settings(settings).items()})
        if json_too:
            print_json({"queue": queue, "shards": made.shards})
        else:
            print(f"made queue {queue!r} with {counted(made.shards, 'shard')}")


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


@command(app, "list")
def list_queues(home: HomeOption = None, json_too: JsonOption = False) -> None:
    """List queues, and how many messages they have.

    Examples:

        tailrace queue list
        tailrace queue list --json | jq '.[] | select(.backlog > 1000).queue'
    """
    with opened(home) as here:
        found = {name: here.queue(name).stats() for name in here.queues()}
    if json_too:
        print_json([{"queue": name, **as_json(one)} for name, one in found.items()])
    elif found:
        rows = [
            (name, len(s.shards), s.backlog, s.running, s.delayed, s.dead, age(s), "paused" if s.paused else "-")
            for name, s in found.items()
        ]
        print_table(("queue", "shards", "backlog", "running", "delayed", "dead", "oldest", "state"), rows)
    else:
        print("no queues yet; `tailrace queue create NAME` makes one")


@command(app)
def push(
    queue: QueueArgument,
    messages: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, each line of stdin is one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The shard key of all messages.")] = None,
    dedup: Annotated[str | None, typer.Option("--dedup", help="The dedup id of one message.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TIME", help="Hold the messages back for this time: 30s, 15m, 2h.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Push each line's bytes as they are, not as JSON or text.")
    ] = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Push messages in one transaction, or with --after each by itself: JSON if a line is JSON, else text.

    Examples:

        tailrace queue push emails '{"to": "ada@example.org"}' --key ada
        tailrace queue push emails --after 15m < messages.jsonl
    """
    from tailrace.queue import Message

    if not messages and sys.stdin.isatty():
        note("each line is a message; Ctrl-D pushes them, Ctrl-C does not")
    lines = [os.fsencode(one) for one in messages or ()] or [line.removesuffix(b"\n") for line in sys.stdin.buffer]
    if dedup is not None and len(lines) != 1:
        raise BadInput(f"--dedup is for one message, not for {len(lines)}")
    delay = None if after is None else values.seconds(after)
    with opened(home) as here, say_if_made(here, queue):
        pushed = here.queue(queue, pusher=_pusher()).push_many(
            [Message(line if raw else _message(n, line), key, dedup, delay) for n, line in enumerate(lines, 1)]
        )
    if json_too:
        print_json([one._asdict() for one in pushed])
    else:
        again = sum(one.duplicate for one in pushed)
        print(f"pushed {counted(len(pushed) - again, 'message')}" + (f", {again} were there already" if again else ""))


@contextmanager
def say_if_made(home: Home, queue: str) -> Iterator[None]:
    """Say after the block that it has created the queue, if it has, and which name may have been meant."""
    names = home.queues()
    yield
    if queue not in names and queue in home.queues():
        near = nearest(queue, names)
        hint = f"; did you mean {near!r}? `tailrace queue delete {queue}` removes the new one" if near else ""
        note(f"made queue {queue!r} with {counted(home.queue(queue).shards, 'shard')}{hint}")


def _pusher() -> str:
    """Return the name under which the command line pushes, which `explain` shows."""
    return f"tailrace queue push, process {os.getpid()} on {socket.gethostname()}"[:200]


def _message(number: int, line: bytes) -> Any:
    """Return the value of a line of JSON, or the line as text; refuse bytes that are no text."""
    try:
        text = line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput(f"message {number} is no text in UTF-8; --raw pushes its bytes: {line!r:.80}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@command(app)
def tail(
    queue: QueueArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Print the newest N messages.")] = 10,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Print the newest messages of a queue, and handle none of them.  With --json each is one line.

    Examples:

        tailrace queue tail emails
        tailrace queue tail emails -n 100 --json
    """
    with opened(home) as here:
        topic = here.queue(queue).topic()
        newest: list[Any] = []
        for q, (floor, end) in topic.ends().items():
            newest += list(topic.records(q, max(floor, end - lines))) if end > floor else []
        newest.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        for one in newest[-lines:] if lines else []:
            shown = {"shard": one.partition, "offset": one.offset, "time": one.timestamp}
            if json_too:
                print(json.dumps({**shown, "shard_key": json_of(one.key), "message": json_of(one.value)}))
            else:
                print(
                    f"{time_of(one.timestamp)}  {one.partition}:{one.offset}  {text_of(one.key)}  {text_of(one.value)}"
                )


def _said(home: str | None, queue: str, what: str, json_too: bool, text: str, **given: Any) -> None:
    with opened(home) as here:
        getattr(here.queue(queue), what)(**given)
    if json_too:
        print_json({"queue": queue, "did": what})
    else:
        print(text)


@command(app)
def pause(queue: QueueArgument, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Pause a queue: no consumer in any process gets another message until `play`; handlers that run go on.

    Examples:

        tailrace queue pause emails
    """
    _said(home, queue, "pause", json_too, f"queue {queue!r} is paused; `tailrace queue play {queue}` goes on")


@command(app)
def play(queue: QueueArgument, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Hand out messages again after a pause.

    Examples:

        tailrace queue play emails
    """
    _said(home, queue, "play", json_too, f"queue {queue!r} goes on")


@command(app)
def rebalance(
    queue: QueueArgument, shards: ShardsOption = None, home: HomeOption = None, json_too: JsonOption = False
) -> None:
    """Spread the shards evenly over the consumers now, or give the queue more shards.

    Consumers spread them by themselves when one comes or goes; this command waits for that, for up to 10 seconds.

    Examples:

        tailrace queue rebalance emails
        tailrace queue rebalance emails --shards 48
    """
    with opened(home) as here:
        shares = here.queue(queue).rebalance(shards)
        count = here.queue(queue).shards
    if json_too:
        print_json({"queue": queue, "did": "rebalance", "shards": count, "consumers": shares})
    elif not shares:
        print(f"queue {queue!r} has {counted(count, 'shard')}, and no consumers yet to share them")
    else:
        print_table(("consumer", "shards"), shares.items())
        if max(shares.values()) - min(shares.values()) > 1 or sum(shares.values()) < count:
            note("not even yet: consumers give shards up when the handlers that are at work on them return")


@command(app)
def replay(
    queue: QueueArgument,
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help="A time, 15m or 2h ago, or an offset.")],
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="PLACE", help="The end of the replay, itself excluded; by default, now."),
    ] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Deliver messages again, beside the live ones; no acknowledged position moves.

    Examples:

        tailrace queue replay emails --from 2h
        tailrace queue replay emails --from 2026-05-01T10:00Z --to 2026-05-01T11:00Z
    """
    with opened(home) as here:
        places: list[Any] = [None if one is None else values.position(one) for one in (start, end)]
        if "latest" in places or "earliest" in places[1:]:
            raise BadInput("a replay goes from a time or an offset to another")
        made = here.queue(queue).replay(0 if places[0] == "earliest" else places[0], places[1])
    if json_too:
        print_json(made._asdict())
    else:
        print(f"{counted(made.messages, 'message')} of {queue!r} will be delivered again")


@command(app)
def explain(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="SHARD:OFFSET", help="The message, as `queue tail` prints it.")],
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Print one message's life: when and by which program it was pushed, its consumers, each error, its
    acknowledgement; and what is not known.

    Examples:

        tailrace queue explain emails 3:1042
    """
    shard, _, offset = message.partition(":")
    if not (shard.isdigit() and offset.isdigit()):
        raise BadInput(f"a message is SHARD:OFFSET, as in 3:1042, not {message!r}")
    with opened(home) as here:
        told = here.queue(queue).explain(int(shard), int(offset))
    if json_too:
        facts = {"shard": told.shard, "offset": told.offset, "state": told.state, "attempts": told.attempts}
        more = {"pushed": told.pushed.isoformat(), "consumer": told.owner, "reason": told.reason}
        moments = [
            {"at": one.at.isoformat(), "until": one.until and one.until.isoformat(), "what": one.what}
            for one in told.moments
        ]
        unknown = {"moments": moments, "not_recorded": list(told.not_recorded)}
        print_json({**facts, "shard_key": json_of(told.shard_key), **more, **unknown})
    else:
        print(told)


@command(app)
def purge(queue: QueueArgument, yes: YesOption = False, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Drop every message that is not done; asks first.

    Examples:

        tailrace queue purge emails
    """
    with opened(home) as here:
        chosen = here.queue(queue)
        confirm(f"Drop {counted(chosen.stats().backlog, 'message')} of {queue!r}?", yes)
        count = chosen.purge(sure=True)
    if json_too:
        print_json({"queue": queue, "purged": count})
    else:
        note(f"dropped {counted(count, 'message')}")


@command(app)
def delete(queue: QueueArgument, yes: YesOption = False, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Delete a queue with its messages, dead letters and settings, for good; asks first.

    Workers of the queue end.  If a deletion is cut off, the same command finishes it.

    Examples:

        tailrace queue delete emails
        tailrace queue delete emails --yes
    """
    with opened(home) as here:
        chosen = here.queue(queue)
        if queue in here.queues():
            confirm(_doomed(chosen), yes)
        chosen.delete(sure=True)
    if json_too:
        print_json({"deleted": queue})
    else:
        print(f"deleted queue {queue!r}")


def _doomed(queue: Queue) -> str:
    """Return the question that a deletion asks: what would be gone, and which consumers work on the queue."""
    now, letters = queue.stats(), sum(1 for _ in queue.dead())
    left = f"{counted(now.backlog + now.delayed, 'message')} that {'is' if now.backlog + now.delayed == 1 else 'are'}"
    working = f", while {', '.join(now.consumers)} handle it" if now.consumers else ""
    return f"Delete queue {queue.name!r} for good, with {left} not done and {counted(letters, 'dead letter')}{working}?"
