"""`tailrace events feed`: every event of the store in one order; `tailrace events index`: the index behind the feed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, YesOption
from tailrace.cli.shared.output import ago, counted, json_of, print_array, print_facts, print_json, print_table, text_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import confirm, note, opened

if TYPE_CHECKING:
    from tailrace.feed import FeedEvent
    from tailrace.feed.validation import EventRange, Validation

MAX_STREAMS_NAMED = 5
"""How many streams `validate` names for each kind of difference; --json has all."""

index = new_group("The index that the feed is made of.")


@index.callback()
def index_commands(home: HomeOption = None) -> None:
    """The index that the feed is made of."""


def feed(
    start: Annotated[
        str, typer.Option("--from", metavar="CHECKPOINT", help="Where to begin; one for each partition, as in 17,3.")
    ] = "0",
    category: Annotated[
        list[str] | None,
        typer.Option("--category", metavar="NAME", help="Only events of this category; may be repeated."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="STREAM", help="Only events of this stream; may be repeated."),
    ] = None,
    type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type; may be repeated.")
    ] = None,
    bodies: Annotated[
        bool, typer.Option("--bodies/--no-bodies", help="Read the events' data, or leave it out.")
    ] = True,
    most: Annotated[int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Print at most N events.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")] = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Print every event of all streams, in one order, from a checkpoint on.

    Text has checkpoint, time, stream/index, type and data between tabs.  --json prints one array, with --follow one
    object per line.  Continue from the last checkpoint printed: of several events that share it, some come again.

    Examples:

        tailrace events feed --max 20
        tailrace events feed --from 4000017 --category Cart --type ItemAdded
        tailrace events feed -f --json | jq -r .stream
    """
    with opened(home) as here:
        events = here.events()
        with events.feed(_checkpoints(start), category=category, stream=stream, type=type, bodies=bodies) as found:
            if not follow:
                events.catch_up()
                _print(islice(found, most), json_too, chosen=bool(category or stream or type or start != "0"))
                return
            for event in islice(found.follow(), most):
                print(as_json(event) if json_too else _line(event))
                sys.stdout.flush()


def _checkpoints(text: str) -> int | list[int]:
    try:
        found = [values.whole(part) for part in text.split(",")]
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is no checkpoint: a whole number, one for each partition of the feed (17,3)", param_hint="--from"
        ) from None
    return found[0] if len(found) == 1 else found


def _print(events: Iterable[FeedEvent], json_too: bool, chosen: bool) -> None:
    if json_too:
        print_array(map(as_json, events))
        return
    printed = False
    for event in events:
        print(_line(event))
        printed = True
    if not printed:
        note("no such events" if chosen else "no events yet")


def as_json(event: FeedEvent) -> str:
    """Return an event of the feed as JSON on one line; `data` is null without bodies, or if the event was pruned."""
    shown: dict[str, Any] = {
        "partition": event.partition,
        "checkpoint": event.checkpoint,
        "stream": event.stream,
        "index": event.index,
        "type": event.type,
        "time": None,
        "id": None,
        "data": None,
    }
    if event.event is not None:
        shown |= {"time": event.event.time, "id": event.event.id, "data": json_of(event.event.data)}
        more = {"correlation": event.event.correlation, "causation": event.event.causation}
        shown |= {name: value for name, value in more.items() if value}
        if event.event.meta:
            shown["meta"] = json_of(event.event.meta)
    return json.dumps(shown, ensure_ascii=False)


def _line(event: FeedEvent) -> str:
    where = f"{text_of(event.stream.encode())}/{event.index}"
    checkpoint = f"{event.partition}:{event.checkpoint}" if event.partition else str(event.checkpoint)
    line = [checkpoint, where, text_of(event.type.encode())]
    if event.event is not None:
        line[1:1] = [str(event.event.time)]
        line.append(text_of(event.event.data))
    return "\t".join(line).rstrip("\t")


@command(index)
def create(
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", parser=values.whole, help="The number of partitions.")
    ] = 1,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Create the index with several partitions, before the feed is read for the first time.

    The index spreads streams over its partitions, which several processes can share.  The number cannot be changed
    later.

    Examples:

        tailrace events index create --partitions 8
    """
    with opened(home, make=True) as here:
        here.events().create_index(partitions)
    if json_too:
        print_json({"partitions": partitions})
    else:
        print(f"the index has {counted(partitions, 'partition')}")


@command(index)
def status(home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Show how far the index is, which process keeps it, and its trouble, if there is any.

    Examples:

        tailrace events index status
        tailrace events index status --json | jq .trouble
    """
    with opened(home) as here:
        found = here.events().index_status()
    if json_too:
        print_json({**asdict(found), "holder": dict(found.holder)})
        return
    print_table(
        ("partition", "epoch", "batches", "checkpoint"),
        [(one.partition, one.epoch, one.batches, str(one.checkpoint)) for one in found.partitions],
    )
    print()
    holder = f"process {found.holder['pid']} on {found.holder['host']}" if found.holder else "no process right now"
    facts: list[tuple[str, object]] = [("kept by", holder), ("complete", "yes" if found.complete else "not yet")]
    if found.read_at is not None:
        facts.append(("last indexed", f"{_since(found.read_at)} ago"))
    if found.behind is not None:
        facts.append(("not indexed yet", counted(found.behind, "change")))
    if found.trouble is not None:
        facts.append(("trouble", f"for {_since(found.trouble['at'])}: {found.trouble['error']}"))
    print_facts(facts)


def _since(milliseconds: int) -> str:
    return ago(max(datetime.now(UTC).timestamp() - milliseconds / 1000, 0.1))


@command(index)
def validate(home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Compare the index with the events in their streams; the exit code is 3 if they differ.

    Reads the whole home and the whole index, and names what is missing; `tailrace events index rebuild` repairs it.

    Examples:

        tailrace events index validate
        tailrace events index validate --json | jq .holes
    """
    with opened(home) as here:
        events = here.events()
        _index_first(events)
        with Bar("comparing", 0, "events") as bar:
            found = events.validate_index(bar.reach)
    if json_too:
        names = ("behind", "holes", "unknown")
        print_json({"ok": found.ok, **asdict(found), **{n: [e._asdict() for e in getattr(found, n)] for n in names}})
    else:
        _print_validation(found)
    if not found.ok:
        raise typer.Exit(3)


def _index_first(events: Any) -> None:
    """Index the events that are only not indexed yet; if that fails, print why, and let the comparison name them."""
    from tailrace.errors import TailraceError

    try:
        events.catch_up()
    except TailraceError as error:
        note(f"tailrace: {error}")


def _print_validation(found: Validation) -> None:
    print_facts([("streams", found.streams), ("events", found.events), ("in the index", found.indexed)])
    for what, some in (
        ("not in the index, at the end of their streams", found.behind),
        ("not in the index, before others of their streams", found.holes),
        ("in the index, and in no stream of this store", found.unknown),
    ):
        if some:
            print(f"\n{counted(sum(one.end - one.first for one in some), 'event')} {what}:")
            print("\n".join(_named(some)))
    if found.doubled:
        print(f"\n{counted(found.doubled, 'event')} more than once in the index")
    if found.damaged:
        print(f"\n{found.damaged}")
    if found.ok:
        print("\nthe index has every event once")
    else:
        print(f"\n`tailrace events index rebuild{' --all' if found.needs_all else ''}` repairs this")


def _named(some: tuple[EventRange, ...]) -> Iterator[str]:
    for one in some[:MAX_STREAMS_NAMED]:
        yield f"  {text_of(one.stream.encode())}  {one.first:,} to {one.end - 1:,}"
    if len(some) > MAX_STREAMS_NAMED:
        yield f"  and {len(some) - MAX_STREAMS_NAMED:,} more"


@command(index)
def rebuild(
    everything: Annotated[bool, typer.Option("--all", help="Make the whole index again, in new epochs.")] = False,
    yes: YesOption = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Add the events that the index lacks, from the streams themselves.

    Checkpoints stay valid.  --all indexes every event again: a reader that continues from an old checkpoint then gets
    every event again, in order.  Use --all only if `validate` says so, and while no process reads the feed; on S3 and
    DynamoDB switch the indexer off first.

    Examples:

        tailrace events index rebuild
        tailrace events index rebuild --all --yes
    """
    if everything:
        confirm("Make the index again? Readers of the feed get every event again.", yes)
    with opened(home) as here:
        events = here.events()
        with Bar("indexing", 0, "events") as bar:
            added = events.rebuild_index(all=everything, told=bar.reach)
        events.catch_up()
    if json_too:
        print_json({"added": added, "all": everything})
    elif everything:
        print(f"made the index again, with {counted(added, 'event')}")
    else:
        print(f"added {counted(added, 'event')} to the index" if added else "the index lacked no event")


def register(app: typer.Typer) -> None:
    """Add the commands to the group of the event store."""
    command(app)(feed)
    app.add_typer(index, name="index")
