"""The pipeline that an operator's command names: its name, its home, and how its messages are printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.pipeline.run import loaded
from tailrace.cli.shared.output import json_of, text_of
from tailrace.cli.shared.session import opened
from tailrace.errors import BadInput

if TYPE_CHECKING:
    from tailrace.adaptors.rows.message import Message
    from tailrace.home import Home

PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name, or its file.")]


@contextmanager
def pipeline_of(given: str, url: str | None) -> Iterator[tuple[Home, str]]:
    """Yields a pipeline's home and name.  If the pipeline is given by its file, its home is the one that the file
    names, unless `url` names another."""
    name, hint = given, ", and so does the pipeline's file, given in place of its name"
    if Path(given).suffix in (".py", ".toml") and Path(given).exists():
        definition = loaded(Path(given), url)
        name, url, hint = definition.name, definition.home, ""
    with opened(url, hint=hint) as home:
        yield home, name


def place(text: str) -> tuple[int, int]:
    """Return the partition and offset of a message of a pipeline, which an operator gives as PARTITION:OFFSET."""
    partition, colon, at = text.partition(":")
    if not colon or not partition.isdigit() or not at.lstrip("-").isdigit():
        raise BadInput(f"a message is named PARTITION:OFFSET, like 0:14, not {text!r}")
    return int(partition), int(at)


def message_as_json(message: Message) -> dict[str, Any]:
    """Return a pipeline's message as an operator's command prints it in JSON; an id that is not UTF-8 becomes
    {"base64": "…"}."""
    from tailrace.adaptors.rows.json_text import finite, plain

    return {
        "timestamp": message.timestamp,
        "mode": message.mode.name.lower(),
        "op": message.op.name.lower(),
        "namespace": message.namespace,
        "id": json_of(_bytes_of(message.id)),
        "transaction": message.place.transaction,
        "position": message.place.position,
        "data": plain(finite(message.data)),
    }


def message_as_text(message: Message) -> str:
    """Return a pipeline's message in a few words, as an operator's command prints it: its op, and the document's
    namespace and id."""
    return f"{message.op.name.lower()} {message.namespace} {text_of(_bytes_of(message.id))}"


def _bytes_of(id: str) -> bytes:
    return id.encode(errors="surrogateescape")
