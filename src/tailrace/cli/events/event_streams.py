"""`tailrace events`: append to streams, read them, look at their Tips, prune them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, YesOption
from tailrace.cli.shared.output import counted, json_of, print_array, print_facts, print_json, print_table
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import confirm, note, opened
from tailrace.errors import BadEvent, BadInput, TailraceError

if TYPE_CHECKING:
    from tailrace.events.event import Event
    from tailrace.events.store import Stream

app = new_group("Event streams, and the events in them.")
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name, Category-id.")]
ArchiveOption = Annotated[
    str | None, typer.Option("--archive", metavar="URL", help="The home that pruned events are moved to.")
]
_FIELDS = {"type", "data", "meta", "id", "correlation", "causation"}
_WRITTEN = {"index", "time"}
"""Fields that `read` prints and `append` ignores, so that `append` takes the output of `read`."""


@app.callback()
def events(home: HomeOption = None) -> None:
    """Event streams, and the events in them."""


def event_of(line: bytes, number: int) -> Event:
    """Return the event in a line of JSON; raise `BadEvent`, which names the line, if there is none."""
    from tailrace.events.event import Event

    try:
        given = json.loads(line)
    except ValueError as error:
        raise BadEvent(f"line {number} is no JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise BadEvent(f'line {number} is no event: {{"type": "…", "data": …}}')
    if unknown := {*given} - _FIELDS - _WRITTEN:
        raise BadEvent(f"line {number} has {sorted(unknown)[0]!r}; an event has {', '.join(sorted(_FIELDS))}")
    named = {name: given[name] for name in ("id", "correlation", "causation") if given.get(name)}
    return Event(given["type"], _bytes_of(given.get("data"), number), _bytes_of(given.get("meta"), number), **named)


def _bytes_of(value: Any, number: int) -> bytes:
    """Return the bytes of a JSON value: text as it is, {"base64": …} decoded, anything else as JSON."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and {*value} == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise BadEvent(f"line {number} has data that is no base64") from None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise BadEvent(f"line {number} has a number that JSON does not know: NaN or infinity") from None


def as_json(event: Event) -> str:
    """Return an event as JSON on one line."""
    shown = {"index": event.index, "type": event.type, "time": event.time, "id": event.id}
    more = {"correlation": event.correlation, "causation": event.causation}
    bodies = {"data": json_of(event.data), "meta": json_of(event.meta)}
    return json.dumps({**shown, **{k: v for k, v in {**more, **bodies}.items() if v}}, ensure_ascii=False)


@command(app)
def append(
    stream: StreamArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A file of JSON lines; by default, or as -, stdin.")
    ] = None,
    expected: Annotated[
        int | None, typer.Option("--expected", metavar="N", help="The version that the stream must be at.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Events to append at once.", min=1)] = 100,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Append events, one JSON object per line: type, and optionally data, meta, id, correlation, causation.

    Data is text, any JSON, or {"base64": "…"}.  Each batch is appended whole or not at all.

    Examples:

        echo '{"type": "ItemAdded", "data": {"sku": 7}}' | tailrace events append Cart-42
        tailrace events append Cart-42 events.jsonl --expected 0
    """
    from tailrace.cli.topic.append import _size, _stream

    path, added = file or Path("-"), 0
    version = expected
    with opened(home, make=True) as here, _stream(path) as lines, Bar(f"appending to {stream}", _size([path])) as bar:
        to = here.events().stream(stream)
        source = enumerate(iter(lines.readline, b""), 1)
        try:
            while some := [*islice(source, batch)]:
                if new := [event_of(line, number) for number, line in some if line.strip()]:
                    version = to.append(new, expected=version if expected is not None else None)
                    added += len(new)
                bar.advance(sum(len(line) for _, line in some))
        except TailraceError:
            if added:
                note(f"tailrace: {counted(added, 'event')} appended before this:")
            raise
        if not added:
            raise BadInput("there was no event to append")
    if json_too:
        print_json({"stream": stream, "events": added, "version": version})
    else:
        print(f"appended {counted(added, 'event')} to {stream!r}, now at version {version}")


@command(app)
def read(
    stream: StreamArgument,
    start: Annotated[int, typer.Option("--from", metavar="INDEX", help="The first index.")] = 0,
    stop: Annotated[int | None, typer.Option("--to", metavar="INDEX", help="The index to stop before.")] = None,
    backwards: Annotated[bool, typer.Option("--backwards", help="Print the newest event first.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Print at most N events.")] = None,
    archive: ArchiveOption = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Print a stream's events, one JSON object per line, as `append` takes them; with --json as one array.

    Examples:

        tailrace events read Cart-42
        tailrace events read Cart-42 --backwards --limit 1 | jq .data
    """
    with opened(home) as here:
        found = here.events(archive=archive).stream(stream).read(start, stop, backwards=backwards, limit=limit)
        if json_too:
            print_array(map(as_json, found))
            return
        for event in found:
            print(as_json(event))


@command(app, "list")
def list_streams(
    category: Annotated[
        str | None, typer.Option("--category", metavar="NAME", help="Only streams of this category.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="STREAM", help="Only streams listed after this one.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="List at most N streams.")] = None,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """List streams, one per line.  Reads through the whole home, page by page.

    Examples:

        tailrace events list --limit 100
        tailrace events list --category Cart --after Cart-42
    """
    with opened(home) as here:
        found = islice(here.events().streams(category, after=after), limit)
        if json_too:
            print_array(map(json.dumps, found))
            return
        for name in found:
            print(name)


@command(app)
def categories(home: HomeOption = None, json_too: JsonOption = False) -> None:
    """List the categories of streams, and how many streams each has.

    Examples:

        tailrace events categories
    """
    with opened(home) as here:
        found = here.events().categories()
    if json_too:
        print_json(found)
    else:
        print_table(("category", "streams"), found.items())


@command(app)
def tip(stream: StreamArgument, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Show a stream's Tip: its version and etag, what it holds, its unfolds.

    Examples:

        tailrace events tip Cart-42
        tailrace events tip Cart-42 --json | jq .version
    """
    with opened(home) as here:
        found = here.events().stream(stream).tip()
        unfolds = [{"type": u.type, "index": u.index, "data": json_of(u.data)} for u in found.unfolds()]
    about = {"stream": stream, "version": found.version, "etag": found.etag, "lowest": found.floor}
    held = {
        "first": found.first,
        "events": len(found.stored_events),
        "bytes": found.bytes,
        "calved_bytes": found.calved_bytes,
    }
    if json_too:
        print_json({**about, **held, "unfolds": unfolds})
    elif not found.exists:
        print(f"nothing was ever appended to {stream!r}")
    else:
        print_facts([*about.items(), *held.items(), ("unfolds", ", ".join(str(u["type"]) for u in unfolds) or "none")])


@command(app)
def prune(
    stream: StreamArgument,
    until: Annotated[int, typer.Option("--until", metavar="INDEX", help="The last index to remove.")],
    archive: ArchiveOption = None,
    yes: YesOption = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Remove a stream's oldest events, for good; its version stays.

    It removes whole calves, and then the first events of the Tip; it defers events that share a calf with later ones.
    With --archive it moves calves into that home before it removes them from this one, and leaves the Tip as it is.

    Examples:

        tailrace events prune Cart-42 --until 999
    """
    with opened(home) as here:
        to = f"into the archive {archive}" if archive else "for good"
        confirm(f"Remove the events of {stream!r} up to {until}, {to}?", yes)
        done = here.events(archive=archive).stream(stream).prune(until)
    if json_too:
        print_json({"stream": stream, **done._asdict()})
    else:
        deferred = f", {done.deferred:,} deferred" if done.deferred else ""
        print(f"removed {counted(done.deleted, 'event')} of {stream!r}{deferred}; the lowest index is {done.lowest:,}")


@command(app)
def stats(stream: StreamArgument, home: HomeOption = None, json_too: JsonOption = False) -> None:
    """Read a whole stream, and count its events and bytes by type.

    Examples:

        tailrace events stats Cart-42
    """
    with opened(home) as here:
        counts = _counts(here.events().stream(stream))
    if json_too:
        print_json({"stream": stream, **counts})
        return
    types = [(f"  {name}", f"{one['events']:,}, {one['bytes']:,} bytes") for name, one in counts.pop("types").items()]
    print_facts([("stream", stream), *counts.items(), *types])


def _counts(stream: Stream) -> dict[str, Any]:
    tip = stream.tip()
    types: dict[str, dict[str, int]] = {}
    with Bar(f"reading {stream.name}", tip.version - tip.floor, "events") as bar:
        for event in _counted(stream.read(), bar):
            one = types.setdefault(event.type, {"events": 0, "bytes": 0})
            one["events"] += 1
            one["bytes"] += len(event.data) + len(event.meta)
    total = {name: sum(one[name] for one in types.values()) for name in ("events", "bytes")}
    return {"version": tip.version, "lowest": tip.floor, **total, "types": dict(sorted(types.items()))}


def _counted(found: Iterator[Event], bar: Bar) -> Iterator[Event]:
    for number, event in enumerate(found, 1):
        yield event
        if number % 1000 == 0:
            bar.reach(number)
