"""Dead letters: messages that a writer could not take, kept with the reason.

    topic <pipeline>-dead    key: writer, value: JSON {writer, partition, offset, namespace, id, error}, or {settled}

The message itself stays in the commit log; a dead letter says where."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.errors import UnknownTopic
from tailrace.home import Home
from tailrace.pipeline.trouble import Trouble


def dead_name(pipeline: str) -> str:
    """The name of the topic with a pipeline's dead letters."""
    return f"{pipeline}-dead"


def bury(home: Home, pipeline: str, writer: str, trouble: Trouble) -> None:
    """Keep one.  After a crash it may be kept twice; `dead_letters` shows it once."""
    topic = home.topic(dead_name(pipeline), partitions=1)
    letter = {
        "writer": writer, "partition": trouble.partition, "offset": trouble.offset,
        "namespace": trouble.namespace, "id": trouble.id, "error": trouble.error,
    }  # fmt: skip
    topic.append([(writer.encode(), msgspec.json.encode(letter))])


def dead_letters(home: Home, pipeline: str) -> list[dict[str, Any]]:
    """All of a pipeline that are not settled, oldest first: {number, at, writer, partition, offset, …, error}."""
    try:
        topic = home.topic(dead_name(pipeline))
    except UnknownTopic:
        return []
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for record in topic.records():
        letter = {"number": record.offset, "at": record.timestamp, **msgspec.json.decode(record.value or b"{}")}
        if "settled" in letter:
            found = {place: one for place, one in found.items() if one["number"] != letter["settled"]}
        else:
            found.setdefault((letter["writer"], letter["partition"], letter["offset"]), letter)
    return list(found.values())


def settle(home: Home, pipeline: str, number: int) -> None:
    """A dead letter has been delivered after all, or needs no delivering any more."""
    home.topic(dead_name(pipeline)).append([(b"", msgspec.json.encode({"settled": number}))])
