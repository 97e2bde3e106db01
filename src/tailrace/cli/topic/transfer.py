"""`tailrace topic export` and `import`: topics as folders of segments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, PartitionOption, TopicArgument
from tailrace.cli.shared.output import counted, print_json, size_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import note, opened

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the export.")]


def export(
    topic: TopicArgument,
    folder: FolderArgument,
    partition: PartitionOption = None,
    drop_headers: Annotated[
        bool, typer.Option("--drop-headers", help="Leave out headers, which the files cannot hold.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the records of a topic to a folder, as plain segment files that other programs can read.

    Each partition has a sub-folder, with files of up to 1 GiB named by their first offset; all partitions are cut at
    one moment.  Each file appears when it is whole.  docs/formats/entry.md describes the bytes.

    Examples:

        tailrace topic export orders ./backup/orders
        tailrace topic export orders ./backup/orders-3 --partition 3
    """
    from tailrace.log.interchange.folder import export_topic

    with opened(home) as here:
        chosen = here.topic(topic)
        total = sum(end - floor for q, (floor, end) in chosen.ends().items() if partition in (None, q))
        with Bar(f"exporting {topic}", total, "records") as bar:
            done = export_topic(chosen, folder, partition=partition, drop_headers=drop_headers, told=bar.advance)
    if as_json:
        print_json([asdict(one) for one in done])
        return
    records, segments = sum(one.records for one in done), sum(one.segments for one in done)
    size = size_of(sum(one.bytes for one in done))
    print(f"exported {counted(records, 'record')} of {topic!r} in {counted(segments, 'segment')}, {size}, to {folder}")


def import_segments(
    topic: TopicArgument,
    folder: FolderArgument,
    partition: PartitionOption = None,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Append all records under the next offsets, even if the topic has them.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append an export to a topic, each record to its partition and under its offset.

    Records that the topic has already are compared and skipped: an import that was cut off can be run again, and stores
    each record once.  A torn end of a last segment is cut off and reported.

    Examples:

        tailrace topic create orders --partitions 8
        tailrace topic import orders ./backup/orders
        tailrace topic import all-orders ./backup/orders --renumber
    """
    from tailrace.log.interchange.folder import import_topic

    with opened(home) as here:
        chosen = here.topic(topic)
        with Bar(f"importing {topic}", 0, "records") as bar:
            done = import_topic(chosen, folder, partition=partition, renumber=renumber, told=bar.advance)
    for text in (text for one in done for text in one.torn):
        note(f"tailrace: {text}")
    for one in (one for one in done if one.gaps):
        note(
            f"partition {one.partition}: {one.gaps:,} offsets between are not in the export, as of a topic that was "
            "compacted; if this was none, a segment is missing"
        )
    if as_json:
        print_json([asdict(one) for one in done])
        return
    records, present = sum(one.records for one in done), sum(one.present for one in done)
    there = f"; {counted(present, 'record')} were there already" if present else ""
    print(f"imported {counted(records, 'record')} into {topic!r}{there}")


def register(app: typer.Typer) -> None:
    """Add `tailrace topic export` and `import`."""
    command(app)(export)
    command(app, "import")(import_segments)
