"""Character sets: decoders for the binlog's texts, which are in the character set of their column.

The binlog names a column's character set by the number of its collation."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from tailrace.adaptors.mysql.database import ask
from tailrace.errors import NotReady

BINARY = 63
"""The number of the collation `binary`: the column holds bytes."""
_WIDE = {
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "big5": "big5",
    "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "cp949",
}  # fmt: skip
_UTF8 = {"utf8mb4", "utf8mb3", "utf8", "ascii"}
Decode = Callable[[bytes], Any]


class Charsets:
    """Decodes the texts of each collation; asks the server for collations, and for the characters of one-byte sets."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._names: dict[int, str] = {}
        self._known: dict[str, Decode | None] = {}
        self._widths: dict[str, int] = {}

    def decode(self, collation: int) -> Decode | None:
        """Return the function that decodes a column's bytes; None if they are UTF-8.

        Raise `NotReady` for a character set that tailrace does not know."""
        if collation == 0:
            return None
        name = self._name(collation)
        if name not in self._known:
            self._known[name] = None if name in _UTF8 else self._decoder(name)
        return self._known[name]

    def width(self, collation: int) -> int:
        """Return the most bytes that a character of this collation takes."""
        return self._widths.get(self._name(collation), 1)

    def _name(self, collation: int) -> str:
        if collation not in self._names:
            self._names |= self._collations()
            sql = "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS"
            self._widths = {str(name): int(width) for name, width in ask(self._connection, sql)}
        return self._names.get(collation, "")

    def _collations(self) -> dict[int, str]:
        sql = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
        found = {int(number): str(name) for number, name in ask(self._connection, sql)}
        if "mariadb" in self._connection.get_server_info().lower():
            sql = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            found |= {int(number): str(name) for number, name in ask(self._connection, sql) if number}
        return found

    def _decoder(self, name: str) -> Decode:
        if name in _WIDE:
            codec = _WIDE[name]
            return lambda data: data.decode(codec)
        if self._widths.get(name) != 1:
            raise NotReady(f"a column has the character set {name!r}, which is not known; CONVERT it TO utf8mb4")
        table = self._table(name)
        return lambda data: codecs.charmap_decode(data, "strict", table)[0]

    def _table(self, name: str) -> str:
        """Ask the server for the characters of all 256 bytes of a one-byte character set."""
        each = ", ".join(f"CONVERT(_{name} X'{byte:02x}' USING utf8mb4)" for byte in range(256))
        (characters,) = ask(self._connection, f"SELECT {each}")
        return "".join(str(character) or " " for character in characters)
