"""`tailrace topic append`: lines, JSON, CSV and Parquet into a topic."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption, TopicArgument
from tailrace.cli.shared.output import counted, print_json
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import note, opened
from tailrace.cli.topic.sources import InputFormat, Portion, format_of, portions
from tailrace.errors import BadInput, BadRecord, TailraceError

if TYPE_CHECKING:
    from tailrace.log.write.acknowledgement import BatchAck
    from tailrace.log.write.input import Records
    from tailrace.log.write.producer import Producer


class Appending:
    """Sends portions of records, and counts the records that are durable."""

    def __init__(self, producer: Producer, partition: int | None) -> None:
        self._producer, self._partition = producer, partition
        self._acks: deque[BatchAck] = deque()
        self.partitions: dict[int, dict[str, int]] = {}

    @property
    def records(self) -> int:
        """The number of records that are known to be durable."""
        return sum(one["records"] for one in self.partitions.values())

    def send(self, records: Records) -> None:
        """Send records; raise if records that were sent before could not be stored."""
        self._acks.append(self._producer.send_batch(records, partition=self._partition))
        while self._acks and self._acks[0].done():
            self._count(self._acks.popleft())

    def finish(self) -> None:
        """Wait until all records are durable; raise if some could not be stored."""
        while self._acks:
            self._count(self._acks.popleft())

    def _count(self, ack: BatchAck) -> None:
        for q, offset, records in ack.result():
            one = self.partitions.setdefault(q, {"partition": q, "first": offset, "last": offset, "records": 0})
            one["last"] = offset + records - 1
            one["records"] += records


def append(
    topic: TopicArgument,
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]…", help="Files; none, or -, is stdin.")] = None,
    format: Annotated[
        InputFormat | None,
        typer.Option("--format", metavar="FORMAT", help="lines, jsonl, csv, parquet, arrow; else by the extension."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="FIELD", help="The field that is the key.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Append to this partition, whatever the key.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report bad rows on stderr, and skip them.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append records to a topic, from files or standard input.

    Each line is a record's value; with --key, or in a .jsonl file, each line is a JSON document.  A row of .csv becomes
    a JSON object, and so does a row of .parquet and .arrow, unless the file is as `tailrace topic read` writes it.

    A bad row ends the command, which names its line and keeps the rows before it; with --skip-bad it continues.

    Examples:

        echo hello | tailrace topic append greetings
        tailrace topic append orders orders.jsonl --key customer
        tailrace topic append orders january.csv february.csv --key id
        tail -F access.log | tailrace topic append clicks
    """
    skipped = 0

    def bad(error: BadRecord) -> None:
        nonlocal skipped
        if not skip_bad:
            raise error
        skipped += 1
        note(f"tailrace: {error}; passed over")

    began = time.monotonic()
    sources = files or [Path("-")]
    with opened(home) as here, here.topic(topic).producer() as producer:
        if key is None and here.topic(topic).settings.compact and all(_is_text(path, format) for path in sources):
            note(f"{topic!r} is compacted by key, and records without one all stay; --key names the field that is it")
        sending = Appending(producer, partition)
        most = here.topic(topic).settings.max_record_bytes
        _send_all(
            sending,
            topic,
            sources,
            lambda path, stream: portions(stream, str(path), format or format_of(path.name, key), key, bad, most),
        )
    done = {"topic": topic, "records": sending.records, "skipped": skipped}
    if as_json:
        print_json({**done, "partitions": [one for _, one in sorted(sending.partitions.items())]})
    else:
        passed = f", passed over {counted(skipped, 'bad row')}" if skipped else ""
        print(
            f"appended {counted(sending.records, 'record')} to {topic!r} in {time.monotonic() - began:.1f} s" + passed
        )


def _send_all(
    sending: Appending, topic: str, files: list[Path], read: Callable[[Path, IO[bytes]], Iterator[Portion]]
) -> None:
    """Send every file; if an error or Ctrl-C ends this early, say how many records are in the topic."""
    try:
        with Bar(f"appending to {topic}", _size(files)) as bar:
            before = 0
            for path in files:
                with _stream(path) as stream:
                    for records, at in read(path, stream):
                        sending.send(records)
                        bar.reach(before + at)
                before += _size([path])
            sending.finish()
    except KeyboardInterrupt:
        sending.finish()
        note(f"tailrace: interrupted; {counted(sending.records, 'record')} appended")
        raise
    except (BadRecord, BadInput) as error:
        sending.finish()
        raise type(error)(f"{error}; {counted(sending.records, 'record')} before it appended") from None
    except TailraceError:
        if sending.records:
            note(f"tailrace: {counted(sending.records, 'record')} appended before this:")
        raise


def _is_text(path: Path, format: InputFormat | None) -> bool:
    """Return whether a file's records have no key of their own."""
    return (format or format_of(path.name, None)) not in (InputFormat.parquet, InputFormat.arrow)


def _size(files: list[Path]) -> int:
    """Return the bytes of all files; 0 if that cannot be known."""
    try:
        return sum(path.stat().st_size for path in files) if all(path.is_file() for path in files) else 0
    except OSError:
        return 0


@contextmanager
def _stream(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        if sys.stdin.isatty():
            note("reading lines from the terminal; Ctrl-D ends")
        yield sys.stdin.buffer
        return
    try:
        file: Any = path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {os.strerror(error.errno or 0)}") from None
    with file:
        yield file


def register(app: typer.Typer) -> None:
    """Add `tailrace topic append`."""
    command(app)(append)
