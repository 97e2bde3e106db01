"""The stdout adaptor: prints messages as JSON, for people and pipes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from msgspec import Meta

from tailrace.adaptors.contract import (
    DROP,
    RENAME,
    TRUNCATE,
    Adaptor,
    Command,
    Guarantee,
    Settings,
    Staged,
    Who,
    Writer,
)
from tailrace.adaptors.rows.json_text import printed, to_json
from tailrace.adaptors.rows.rows import namespace_of


class StdoutSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The standard output of the process that runs the pipeline."""

    format: Annotated[
        Literal["jsonl", "pretty"], Meta(description="one line for each message, or indented for reading")
    ] = "jsonl"


class StdoutWriter(Writer):
    """Prints messages.  Tasks make the text and the driver prints it, because a task has no terminal."""

    guarantee: ClassVar[Guarantee] = "at least once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE, DROP, RENAME})
    on_driver: ClassVar[bool] = True

    def __init__(self, settings: StdoutSink) -> None:
        self._spaces = 2 if settings.format == "pretty" else 0

    def check(self) -> None:
        """Nothing to check before printing."""

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Make the text of a share's messages; the task's result carries it to the driver."""
        texts: list[str] = []
        counts: dict[str, int] = {}
        for batch in rows:
            texts += printed(batch, self._spaces)
            counts[namespace_of(batch)] = counts.get(namespace_of(batch), 0) + batch.num_rows
        return Staged(sum(counts.values()), texts, counts)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Print the text of all shares."""
        for share in staged:
            for text in share.detail:
                sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Print the command as a line of JSON."""
        told = {
            "op": "command",
            "namespace": namespace,
            "command": command.name,
            **({"to": command.to} if command.to else {}),
        }
        sys.stdout.write(to_json(told).decode() + "\n")
        sys.stdout.flush()


STDOUT = Adaptor(
    "stdout",
    "prints messages as JSON",
    writer=StdoutWriter,
    writer_settings=StdoutSink,
    example='.save("stdout", format="pretty")',
)
