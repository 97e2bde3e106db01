"""Output of commands: tables and lines for people, JSON for programs.

In JSON, bytes that are UTF-8 are text, other bytes are {"base64": "…"}, and missing ones null.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from tailrace.log.record import Record

UNLIMITED = 10_000
"""Columns of output that is no terminal, so that no line is wrapped or cut."""


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; without a terminal it neither wraps nor cuts lines.

    Names and values are shown as they are: what looks like markup or an emoji's name in them is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNLIMITED
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def emit(shown: RenderableType) -> None:
    """Print what rich can render, without blanks at the ends of lines."""
    out = console()
    with out.capture() as captured:
        out.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people: rows under column names."""
    emit(table_of(names, rows))


def table_of(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return the table that `print_table` prints: rows under column names, with numbers aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    kept = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(names):
        numeric = bool(kept) and all(isinstance(row[n], (int, float)) for row in kept)
        table.add_column(name.upper(), justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    return table


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print a description for people: names and values, one pair per line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(f"{value:,}" if isinstance(value, int) else str(value)))
    emit(table)


def print_json(value: Any) -> None:
    """Print a value as one indented JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_array(documents: Iterable[str]) -> None:
    """Print a JSON array of documents that are JSON already, as they come: all of them need not fit into memory."""
    before = "[\n  "
    for document in documents:
        print(before + document, end="")
        before = ",\n  "
    print("\n]" if before.startswith(",") else "[]")


def text_of(data: bytes | None) -> str:
    """Return bytes for people: text if they are UTF-8, with control characters escaped; else marked hexadecimal."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"hex:{data.hex()}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_of(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON has them: text if they are UTF-8, else {"base64": "…"}; null for none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def time_of(milliseconds: int) -> str:
    """Return a timestamp for people: text in UTC."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def ago(seconds: float) -> str:
    """Return an age for people: 12.0 s, 3.5 h; a dash for 0."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds else "-"


def size_of(count: float) -> str:
    """Return a number of bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """Return a number and its noun for people: "1 record", "2,000 records"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def record_as_json(record: Record) -> str:
    """Return a record as JSON on one line, always with the same fields."""
    return json.dumps(
        {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": json_of(record.key),
            "value": json_of(record.value),
            "headers": [[name, json_of(value)] for name, value in record.headers],
            "mode": record.mode.name.lower(),
            "op": record.op.name.lower(),
        },
        ensure_ascii=False,
    )


def record_as_text(record: Record) -> str:
    """Return a record for people, on one line, between tabs: partition:offset, time, key, value; op and mode if they
    are set; headers."""
    line = [
        f"{record.partition}:{record.offset}",
        time_of(record.timestamp),
        text_of(record.key),
        text_of(record.value),
    ]
    if record.attributes:
        line.append(f"{record.op.name.lower()}/{record.mode.name.lower()}")
    line += [f"{text_of(name.encode())}={text_of(value)}" for name, value in record.headers]
    return "\t".join(line)
