"""`tailrace topic read` and `tail`: records out of a topic."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, PartitionOption, PrintFormat, TopicArgument
from tailrace.cli.shared.output import record_as_json, record_as_text
from tailrace.cli.shared.session import opened
from tailrace.cli.topic import printing

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.log.read.fetched import Fetched
    from tailrace.log.record import Record
    from tailrace.log.topic import Topic


def read(
    topic: TopicArgument,
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="earliest, latest, an offset, a time, or 15m, 2h, 7d ago.")
    ] = "earliest",
    partition: PartitionOption = None,
    most: Annotated[
        int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Print at most N records.")
    ] = None,
    format: Annotated[
        PrintFormat, typer.Option("--format", metavar="FORMAT", help="text, json, jsonl, arrow, parquet.")
    ] = PrintFormat.text,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
    from_floor: Annotated[
        bool, typer.Option("--from-floor", help="Begin at the floor if records at --from were removed.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the records that are in a topic now, in order within each partition.

    Text has partition:offset, time, key and value between tabs.  Bytes that are no UTF-8 are shown as hex:…, in JSON as
    {"base64": …}; Arrow and Parquet have all bytes as they are.

    Examples:

        tailrace topic read orders --max 10
        tailrace topic read orders --from 2026-01-31T12:00:00Z --format jsonl
        tailrace topic read orders --from 2h --partition 3
        tailrace topic read orders --format parquet --output orders.parquet
    """
    format = PrintFormat.json if as_json else format
    with opened(home) as here, printing.destination(output, format) as out:
        found = here.topic(topic).fetch(partition, values.position(start), from_floor=from_floor)
        printing.write(_first(found, most), topic, format, out)


def _first(fetched: Iterator[Fetched], most: int | None) -> Iterator[Fetched]:
    """Yields the first `most` records; all if it is None."""
    left = most
    for one in fetched:
        if left is not None:
            one = replace(one, data=one.data.slice(0, left))
            left -= one.data.num_rows
        if one.data.num_rows:
            yield one
        if left == 0:
            return


def tail(
    topic: TopicArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Print the last N records.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    partition: PartitionOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the last records of a topic, and with --follow those that are appended.

    The last records of all partitions are put in the order of their timestamps.  With --json each is one line.

    Examples:

        tailrace topic tail orders
        tailrace topic tail orders -f -n 0
        tailrace topic tail orders -f --json | jq .value
    """
    with opened(home) as here:
        chosen = here.topic(topic)
        ends = chosen.ends()
        if partition is not None:
            chosen.offset_at(partition, "latest")
            ends = {partition: ends[partition]}
        for record in _last(chosen, ends, lines):
            _print(record, as_json)
        sys.stdout.flush()
        if follow:
            _follow(here, chosen, {q: end for q, (_, end) in ends.items()}, as_json)


def _print(record: Record, as_json: bool) -> None:
    print(record_as_json(record) if as_json else record_as_text(record))


def _last(topic: Topic, ends: dict[int, tuple[int, int]], count: int) -> list[Record]:
    """Return the last `count` records before these ends, by time; those of one partition stay in its order."""
    found = []
    for q, (floor, end) in ends.items():
        if count and end > floor:
            some = printing.records(topic.fetch(q, max(floor, end - count)), topic.name)
            found.append([record for record in chain.from_iterable(some) if record.offset < end])
    merged = heapq.merge(*found, key=attrgetter("timestamp"))
    return list(merged)[-count:] if count else []


def _follow(home: Home, topic: Topic, positions: dict[int, int], as_json: bool) -> None:
    from tailrace.log.interchange.folder import plain
    from tailrace.log.read.reader import Reader
    from tailrace.log.read.watch import TopicFollower
    from tailrace.log.topic import as_records

    reader = Reader(topic.log, positions)
    with TopicFollower(home.store, reader, lambda fetched: as_records(topic.name, plain(fetched))) as records:
        for record in records:
            _print(record, as_json)
            sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add `tailrace topic read` and `tail`."""
    command(app)(read)
    command(app)(tail)
