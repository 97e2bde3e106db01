"""`tailrace stream`: tables and their change streams: list, describe, tail, token, copy."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, TopicArgument, complete_tables
from tailrace.cli.shared.output import counted, print_facts, print_json, print_table, text_of, time_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import note, opened
from tailrace.errors import StorageError, UnknownTable, UnknownTopic

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.log.topic import Topic
    from tailrace.storage.changes import Shard
    from tailrace.streams import Record
    from tailrace.streams.description import TableDescription
    from tailrace.streams.engine import Engine
    from tailrace.streams.stream import Stream

DEFAULT_TAIL_CHANGES = 10
"""How many of the newest changes `tail` prints if no option says where to begin."""

TOKEN_SECONDS = 3600.0
"""How often `tail --follow` saves its token while nothing changes: a token older than 24 hours may be invalid."""

app = new_group("Tables, and the streams of their changes.")
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table's name.", autocompletion=complete_tables)
]
PLACES = "trim_horizon, latest, a time, 15m or 2h ago, or a file with a token."


@app.callback()
def streams(home: HomeOption = None) -> None:
    """Tables, and the streams of their changes."""


def as_json(found: TableDescription) -> dict[str, Any]:
    """Return a table of models as `tailrace stream` prints it with --json."""
    return {
        "table": found.name,
        "hash_key": _key_as_json(found.hash_key),
        "range_key": _key_as_json(found.range_key),
        "stream": list(found.stream) or None,
    }


def _key_as_json(key: tuple[str, str] | None) -> dict[str, str] | None:
    return None if key is None else {"name": key[0], "type": key[1]}


def _key_as_text(found: TableDescription) -> str:
    keys = [key for key in (found.hash_key, found.range_key) if key is not None]
    return ", ".join(f"{name} ({kind})" for name, kind in keys)


def _carried(found: TableDescription) -> str:
    return ", ".join(found.stream) or "none"


@command(app, "list")
def list_tables(home: HomeOption = None, json_too: JsonOption = False) -> None:
    """List tables, their keys, and what their changes carry.

    In a folder these are the tables of models; on S3 and DynamoDB all tables of the account and region.

    Examples:

        tailrace stream list
        tailrace stream list --json | jq -r '.[] | select(.stream).table'
    """
    with opened(home) as here:
        engine = here.engine()
        names = engine.tables()
        with Bar("looking at tables", len(names), "tables") as bar:
            found = [one for name in names if (one := _described(engine, name, bar)) is not None]
    if json_too:
        print_json([as_json(one) for one in found])
    elif found:
        print_table(("table", "key", "stream"), [(one.name, _key_as_text(one), _carried(one)) for one in found])
    else:
        print("no tables yet; engine.bind(MODEL) makes one: docs/guide/streams.md")


def _described(engine: Engine, name: str, bar: Bar) -> TableDescription | None:
    """Return a table's description; None if it was dropped since the names were listed."""
    bar.advance(1)
    try:
        return engine.describe(name, shards=False)
    except UnknownTable:
        return None


@command(app)
def describe(table: TableArgument, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Show a table's key, what its changes carry, and the shards of its stream.

    Examples:

        tailrace stream describe User
        tailrace stream describe User --json | jq '.shards | length'
    """
    with opened(home) as here:
        found = here.engine().describe(table)
    if json_too:
        print_json({**as_json(found), "stream_id": found.stream_id, "shards": [s._asdict() for s in found.shards]})
        return
    facts = [("table", found.name), ("key", _key_as_text(found)), ("changes carry", _carried(found))]
    if not found.stream:
        print_facts(facts)
    else:
        going = sum(shard.last is None for shard in found.shards)
        print_facts([*facts, ("stream", found.stream_id), ("shards", f"{len(found.shards):,}, {going:,} open")])
        print()
        rows = [(f"{'  ' * depth}{shard.id}", _state(shard)) for depth, shard in descent(found.shards)]
        print_table(("shard", "state"), rows)


def _state(shard: Shard) -> str:
    return "open" if shard.last is None else "closed"


def descent(shards: Sequence[Shard]) -> Iterator[tuple[int, Shard]]:
    """Yields each shard of a change stream before its children, with its depth: the number of splits above it."""
    known = {shard.id for shard in shards}
    children: dict[str | None, list[Shard]] = {}
    for shard in shards:
        children.setdefault(shard.parent if shard.parent in known else None, []).append(shard)
    left = [(0, shard) for shard in reversed(children.get(None, []))]
    while left:
        depth, shard = left.pop()
        yield depth, shard
        below = children.get(shard.id, [])
        left += [(depth + (len(below) > 1), child) for child in reversed(below)]


@command(app)
def tail(
    table: TableArgument,
    start: Annotated[str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACES}")] = None,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, metavar="N", help="Print only the newest N changes; without --from, 10."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new changes until Ctrl-C.")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write to this file the token of the place after the last change."),
    ] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Print the changes of a table: time, what happened, the item's key, and what has changed in it.

    A change that only carries keys shows no attributes.  With --json each change is one line.  The next
    `tail --from FILE` continues from the token that --save writes.

    Examples:

        tailrace stream tail User
        tailrace stream tail User -f --from latest
        tailrace stream tail User --from 2h --json | jq .new.email
        tailrace stream tail User --from token.json --save token.json
    """
    with opened(home) as here:
        place = values.place_in_stream(start or "trim_horizon")
        with here.engine().stream(table, place) as stream:
            most = DEFAULT_TAIL_CHANGES if lines is None and start is None else lines
            _print_present(stream, most, json_too)
            sys.stdout.flush()
            _save(stream, save)  # only now: changes that an error or Ctrl-C keeps from being printed come next time
            if follow:
                _follow(stream, json_too, save)


def _print_present(stream: Stream[Record[Any]], most: int | None, json_too: bool) -> None:
    """Print the changes that there are now, or the newest `most` of them."""
    present = iter(lambda: next(stream), None)
    if most is None:
        printed = 0
        for record in present:
            _print(record, json_too)
            printed += 1
        if not printed and not json_too:
            note(f"table {stream.table!r} has no changes from there on")
        return
    kept: deque[Record[Any]] = deque(maxlen=most)
    with Bar(f"reading {stream.table}", 0, "changes") as bar:
        for record in present:
            if record is not None:
                kept.append(record)
            bar.advance(1)
    for record in kept:
        _print(record, json_too)
    if not kept and not json_too:
        note(f"table {stream.table!r} has no changes yet" if most else "no changes were asked for")


def _follow(stream: Stream[Record[Any]], json_too: bool, save: Path | None) -> None:
    while True:
        for record in stream.follow(seconds=TOKEN_SECONDS):
            _print(record, json_too)
            sys.stdout.flush()
            _save(stream, save)
        _save(stream, save)


def _save(stream: Stream[Any], file: Path | None) -> None:
    """Write the stream's token so that the file always holds a whole token."""
    if file is None:
        return
    part = file.with_name(file.name + ".part")
    try:
        part.write_text(json.dumps(stream.token) + "\n")
        os.replace(part, file)
    except OSError as error:
        raise StorageError(f"cannot write the token to {file}: {error.strerror}") from error


def _print(record: Record[Any] | None, json_too: bool) -> None:
    from tailrace.streams.document import document, encode

    if record is not None:
        shown = document(record)
        print(encode(shown).decode() if json_too else _line(shown))


def _line(change: dict[str, Any]) -> str:
    """Return a change on one line, between tabs."""
    key, new, old = change["key"], change["new"], change["old"]
    line = [time_of(change["meta"]["created_at"]), change["meta"]["event"]["type"], _attributes(key)]
    if new is not None and old is not None:
        line.append(" ".join(_differences(new, old)))
    elif (image := new if new is not None else old) is not None:
        line.append(_attributes({name: value for name, value in image.items() if name not in key}))
    return "\t".join(line).rstrip()


def _attributes(item: dict[str, Any]) -> str:
    return " ".join(f"{_text(name)}={_value(value)}" for name, value in item.items())


def _differences(new: dict[str, Any], old: dict[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"-{_text(name)}"
        elif name not in old:
            yield f"+{_text(name)}={_value(new[name])}"
        elif new[name] != old[name]:
            yield f"{_text(name)}={_value(old[name])}→{_value(new[name])}"


def _text(name: str) -> str:
    return text_of(name.encode())


def _value(value: Any) -> str:
    from tailrace.streams.document import encode

    return text_of(encode(value))


@command(app)
def token(
    table: TableArgument,
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"The place: {PLACES}")] = "latest",
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Write the token to this file.")] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Make a token of a place in a table's changes, from which a program can continue at any time; or check a token.

    --json prints the token itself.  A token that is damaged, too old or another table's is refused, with the reason.

    Examples:

        tailrace stream token User --save token.json
        tailrace stream token User --from 2026-01-31T12:00:00Z --json
        tailrace stream token User --from token.json
    """
    with opened(home) as here, here.engine().stream(table, values.place_in_stream(start)) as stream:
        stream.check()
        _save(stream, save)
        made = stream.token
    if json_too:
        print_json(made)
        return
    shards = [(place["shard"], _place(place)) for place in made["shards"]]
    print_facts([("table", made["table"]), ("stream", made["stream"]), ("at", time_of(made["at"] * 1000))])
    print()
    print_table(("shard", "goes on"), shards)
    if save is not None:
        note(f"the token is in {save}")


def _place(place: dict[str, Any]) -> str:
    if place.get("after"):
        return f"after {place['after']}"
    if place.get("since"):
        return f"with changes since {time_of(place['since'])}"
    return "at its beginning"


@command(app)
def copy(
    table: TableArgument,
    topic: TopicArgument,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where the first copy begins: {PLACES}")
    ] = "trim_horizon",
    once: Annotated[bool, typer.Option("--once", help="End once all changes up to now are copied.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget how far the copy is, and begin at --from.")
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, metavar="N", help="Create the topic with N partitions if it is missing."
        ),
    ] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Copy a table's changes into a topic, each once, as they come; Ctrl-C ends, and the next run continues.

    A record has the item's key and the change as JSON, and insert, update or delete as its op.  Changes of one item are
    in one partition, in order.  Several processes may copy the same table: the topic still gets each change once.

    Examples:

        tailrace stream copy User user-changes --partitions 8
        tailrace stream copy User user-changes --once
        tailrace stream copy User user-changes --from latest
    """
    with opened(home) as here:
        place = values.place_in_stream(start)
        chosen = here.topic(topic, partitions) if partitions else _topic(here, topic)
        with here.copy_stream(table, chosen, place, restart=restart) as copying:
            copied = 0
            if not once:
                note(f"copying {table!r} into {topic!r}, {copying.records:,} changes so far; Ctrl-C ends")
            try:
                with Bar(f"copying {table}", 0, "changes") as bar:
                    for count in copying.once_in_batches() if once else copying.follow():
                        copied += count
                        bar.reach(copied)
            finally:
                _report_copied(copied, copying.records, table, topic, json_too)


def _topic(here: Home, name: str) -> Topic:
    try:
        return here.topic(name)
    except UnknownTopic as error:
        raise UnknownTopic(f"{error}; --partitions N does so here") from None


def _report_copied(copied: int, records: int, table: str, topic: str, json_too: bool) -> None:
    if json_too:
        print_json({"table": table, "topic": topic, "copied": copied, "records": records})
    else:
        print(f"copied {counted(copied, 'change')} of {table!r} into {topic!r}, {records:,} in all")
