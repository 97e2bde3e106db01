"""Keys, values and data of records: as JSON, text or hex, whole or shortened.  They may hold any bytes."""

from __future__ import annotations

import json
from typing import Literal

from tailrace.console.data import Base64, Data, bytes_of
from tailrace.console.web.formats import count, visible

View = Literal["json", "text", "hex"]
VIEWS: tuple[View, ...] = ("json", "text", "hex")
MOST_SHOWN, MOST_LISTED = 256 * 1024, 16 * 1024
"""The most characters or bytes of a value that a page of one value shows, and that a page of many values shows of each;
the API returns all of it."""
DEEPEST = 12
"""The deepest level of JSON that is indented: without a limit, a record of 256 KiB could make a page of 200 MiB."""
SHORT = 160
"""The characters of a key or value that a table shows."""


def raw(data: Data) -> bytes:
    """Return the bytes of a key or value; none for null."""
    return bytes_of(data) or b""


def brief(data: Data, length: int = SHORT) -> str:
    """Return the beginning of the data on one line, for a table."""
    if data is None:
        return "null"
    if isinstance(data, Base64):
        some = data.base64[: length // 3]
        return some.hex(" ") + (" …" if len(some) < len(data.base64) else "")
    line = visible(data[: length + 1].replace("\n", " ").replace("\t", " "))
    return line[:length] + "…" if len(data) > length else line


def view_of(data: Data, wanted: str | None) -> View:
    """Return how to show the data: as asked, or else by its content."""
    if wanted in VIEWS:
        return next(view for view in VIEWS if view == wanted)
    if isinstance(data, Base64):
        return "hex"
    return "json" if data is not None and data[:1] in ("{", "[") and is_json(data) else "text"


def whole(data: Data, view: View, most: int = MOST_SHOWN) -> str:
    """Return the data as text, up to `most` characters or bytes; the last line says how many are left out."""
    if data is None:
        return "null"
    if view == "hex":
        return dump(raw(data)[:most]) + _left_out(len(raw(data)) - most, "byte")
    if isinstance(data, str):
        text, rest = data[:most], _left_out(len(data) - most, "character")
    else:
        text, rest = raw(data)[:most].decode("utf-8", "replace"), _left_out(len(raw(data)) - most, "byte")
    if view == "json" and is_json(text):
        text = indented(text)
    return visible(text) + rest


def _left_out(rest: int, unit: str) -> str:
    return f"\n… {count(rest, f'more {unit}')}; the API returns all" if rest > 0 else ""


def is_json(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str) -> str:
    """Return JSON with line breaks and indentation, down to the level DEEPEST.  Nothing is decoded, so every number
    stays as it was written."""
    out: list[str] = []
    depth, at, end = 0, 0, len(text)
    while at < end:
        letter = text[at]
        if letter == '"':
            stop = at + 1
            while text[stop] != '"':
                stop += 2 if text[stop] == "\\" else 1
            out.append(text[at : stop + 1])
            at = stop
        elif letter in "{[":
            after = at + 1
            while text[after].isspace():
                after += 1
            if text[after] in "}]":
                out.append(letter + text[after])
                at = after
            else:
                depth += 1
                out.append(f"{letter}\n{_indent(depth)}")
        elif letter in "}]":
            depth -= 1
            out.append(f"\n{_indent(depth)}{letter}")
        elif letter == ",":
            out.append(f",\n{_indent(depth)}")
        elif letter == ":":
            out.append(": ")
        elif not letter.isspace():
            out.append(letter)
        at += 1
    return "".join(out)


def _indent(depth: int) -> str:
    return "  " * min(depth, DEEPEST)


def dump(data: bytes) -> str:
    """Return the bytes of a key or value as `hexdump -C` shows them."""
    lines = []
    for at in range(0, len(data), 16):
        some = data[at : at + 16]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in some)
        lines.append(f"{at:08x}  {some[:8].hex(' '):<23}  {some[8:].hex(' '):<23}  |{letters}|")
    return "\n".join(lines)
