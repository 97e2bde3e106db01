"""Dead letters: messages that a writer could not deliver, stored whole, with the reason.

    topic <pipeline>-dead    key: writer
                             value: JSON {writer, partition, offset, namespace, id, error, row}, or {settled}

`row` is the message as in the commit log: one row of `adaptors.rows`, as an Arrow stream in base64.  So retention and
compaction of the commit log do not affect a dead letter.  Letters of earlier versions have no `row`: their message is
only in the commit log, for as long as that keeps it.
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
    """Store a dead letter with its message, which the commit log has until the writer acknowledges it: so call this
    before.

    After a crash it may be stored twice; `dead_letters` returns it once."""
    topic = home.topic(dead_name(pipeline), partitions=1)
    letter = {
        "writer": writer, "partition": trouble.partition, "offset": trouble.offset,
        "namespace": trouble.namespace, "id": trouble.id, "error": trouble.error,
    }  # fmt: skip
    message = _in_log(home, pipeline, letter)
    whole = letter if message is None else {**letter, "row": _encoded(message.data)}
    try:
        topic.append([(writer.encode(), msgspec.json.encode(whole))])
    except TooLarge:  # as text a message takes more bytes than in the commit log, which has the same limit
        topic.configure(max_record_bytes=HIGHEST["max_record_bytes"])
        topic.append([(writer.encode(), msgspec.json.encode(whole))])


class DeadLetter(msgspec.Struct, omit_defaults=True):
    """A stored letter without its message, or a record that settles one."""

    writer: str = ""
    partition: int = -1
    offset: int = -1
    namespace: str = ""
    id: str = ""
    error: str = ""
    settled: int | None = None


class _Row(msgspec.Struct):
    """The message of a stored letter."""

    row: str = ""


_letter, _row = msgspec.json.Decoder(DeadLetter), msgspec.json.Decoder(_Row)


def dead_letters(home: Home, pipeline: str) -> list[dict[str, Any]]:
    """The dead letters of a pipeline that are not settled, oldest first, without their messages: {number, at, writer,
    partition, offset, …, error}.  Reads the topic once."""
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
    """The dead letter of this number; `NotThere` if there is none that is not settled."""
    letter = next((one for one in dead_letters(home, pipeline) if one["number"] == number), None)
    if letter is None:
        raise NotThere(f"{pipeline!r} has no dead letter {number}; `tailrace dead list {pipeline}` lists them")
    return letter


def dead_messages(
    home: Home, pipeline: str, letters: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Fetched]]:
    """These letters in order of number, each with its message: one row, with its partition and offset in the commit
    log.  Reads the topic once, from the first letter to the last, and keeps one message at a time in memory."""
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
    """A letter's message in the commit log; None if the log no longer has it."""
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
    """Settle a dead letter, which was delivered after all or no longer needs delivery: `dead_letters` leaves it out."""
    home.topic(dead_name(pipeline)).append([(b"", msgspec.json.encode({"settled": number}))])
