"""Dead letters: messages that a writer could not take, kept whole, with the reason.

    topic <pipeline>-dead    key: writer
                             value: JSON {writer, partition, offset, namespace, id, error, row}, or {settled}

`row` is the message as the commit log had it: one row of `adaptors.rows`, as an Arrow stream in base64.  So retention
and compaction of the commit log take nothing from a dead letter.  Letters of earlier versions have no `row`: their
message is in the commit log for as long as that keeps it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.errors import NotThere, OutOfRange, TooLarge, UnknownTopic
from tailrace.home import Home
from tailrace.log.read.fetched import Fetched
from tailrace.log.settings import HIGHEST
from tailrace.log.write.source_append import log_name
from tailrace.pipeline.runtime.trouble import Trouble


def dead_name(pipeline: str) -> str:
    """The name of the topic with a pipeline's dead letters."""
    return f"{pipeline}-dead"


def bury(home: Home, pipeline: str, writer: str, trouble: Trouble) -> None:
    """Keep one, with its message, which the commit log has for as long as the writer has not acknowledged it.

    After a crash it may be kept twice; `dead_letters` shows it once."""
    topic = home.topic(dead_name(pipeline), partitions=1)
    letter = {
        "writer": writer, "partition": trouble.partition, "offset": trouble.offset,
        "namespace": trouble.namespace, "id": trouble.id, "error": trouble.error,
    }  # fmt: skip
    message = _in_log(home, pipeline, letter)
    whole = letter if message is None else {**letter, "row": _encoded(message.data)}
    try:
        topic.append([(writer.encode(), msgspec.json.encode(whole))])
    except TooLarge:  # a message may be as large as the commit log takes it, and here it is written as text
        topic.configure(max_record_bytes=HIGHEST["max_record_bytes"])
        topic.append([(writer.encode(), msgspec.json.encode(whole))])


class DeadLetter(msgspec.Struct, omit_defaults=True):
    """A letter as it is stored, or what settles one."""

    writer: str = ""
    partition: int = -1
    offset: int = -1
    namespace: str = ""
    id: str = ""
    error: str = ""
    settled: int | None = None


class _Row(msgspec.Struct):
    """The part of a stored letter with the message."""

    row: str = ""


_letter, _row = msgspec.json.Decoder(DeadLetter), msgspec.json.Decoder(_Row)


def dead_letters(home: Home, pipeline: str) -> list[dict[str, Any]]:
    """All of a pipeline that are not settled, oldest first: {number, at, writer, partition, offset, …, error}.  It
    reads the topic once, and keeps none of the messages."""
    try:
        topic = home.topic(dead_name(pipeline))
    except UnknownTopic:
        return []
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    places: dict[int, tuple[str, int, int]] = {}
    for record in topic.records():
        letter = _letter.decode(record.value or b"{}")
        place = (letter.writer, letter.partition, letter.offset)
        if letter.settled is not None:
            found.pop(places.pop(letter.settled, place), None)
        elif place not in found:
            found[place] = {"number": record.offset, "at": record.timestamp, **msgspec.to_builtins(letter)}
            places[record.offset] = place
    return list(found.values())


def dead_letter(home: Home, pipeline: str, number: int) -> dict[str, Any]:
    """A dead letter that is not settled."""
    letter = next((one for one in dead_letters(home, pipeline) if one["number"] == number), None)
    if letter is None:
        raise NotThere(f"{pipeline!r} has no dead letter {number}; `tailrace dead list {pipeline}` lists them")
    return letter


def dead_messages(
    home: Home, pipeline: str, letters: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Fetched]]:
    """Letters with their messages, in order by number: each one row, and where in the commit log it was.  The topic is
    read once, from the first of them to the last, and one message is kept at a time."""
    wanted = {letter["number"]: letter for letter in letters}
    if not wanted:
        return
    for record in home.topic(dead_name(pipeline)).records(0, min(wanted)):
        if (letter := wanted.pop(record.offset, None)) is not None:
            yield letter, _message(home, pipeline, letter, _row.decode(record.value or b"{}").row)
        if not wanted:
            return


def _message(home: Home, pipeline: str, letter: Mapping[str, Any], row: str) -> Fetched:
    if row:
        return Fetched(letter["partition"], letter["offset"], _decoded(row))
    if (found := _in_log(home, pipeline, letter)) is not None:
        return found
    raise NotThere(
        f"the message {letter['partition']}:{letter['offset']} is no longer in the commit log of {pipeline!r}: upkeep "
        f"removed it, and the dead letter {letter['number']} is of an earlier version, which kept only its place"
    )


def _in_log(home: Home, pipeline: str, letter: Mapping[str, Any]) -> Fetched | None:
    """A letter's message in the commit log; None if it is not there any more."""
    q, at = letter["partition"], letter["offset"]
    try:
        fetched = next(iter(home.topic(log_name(pipeline)).fetch(q, at)), None)
    except (OutOfRange, UnknownTopic):
        return None
    one = fetched.between(at, at + 1) if fetched is not None else None
    return one if one is not None and one.data.num_rows else None


def _encoded(row: pa.RecordBatch) -> str:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, row.schema) as stream:
        stream.write_batch(row)
    return base64.b64encode(out.getvalue().to_pybytes()).decode()


def _decoded(text: str) -> pa.RecordBatch:
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()


def settle(home: Home, pipeline: str, number: int) -> None:
    """A dead letter has been delivered after all, or needs no delivering any more."""
    home.topic(dead_name(pipeline)).append([(b"", msgspec.json.encode({"settled": number}))])
