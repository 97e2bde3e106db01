"""Character sets: the log has texts in the one of their column, and names it by a collation's number."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from tailrace.adaptors.mysql.database import ask
from tailrace.errors import NotReady

BINARY = 63
"""The collation of bytes."""
_WIDE = {
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "big5": "big5",
    "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "cp949",
}  # fmt: skip
_UTF8 = {"utf8mb4", "utf8mb3", "utf8", "ascii"}
Decode = Callable[[bytes], Any]


class Charsets:
    """How the texts of each collation are decoded; asks the server for what each byte is in the smaller sets."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._names: dict[int, str] = {}
        self._known: dict[str, Decode | None] = {}
        self._widths: dict[str, int] = {}

    def decode(self, collation: int) -> Decode | None:
        """What makes a text of a column's bytes; None if they are UTF-8 as they are."""
        if collation == 0:
            return None
        name = self._name(collation)
        if name not in self._known:
            self._known[name] = None if name in _UTF8 else self._decoder(name)
        return self._known[name]

    def width(self, collation: int) -> int:
        """The most bytes that a character takes."""
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
        """The characters of all 256 bytes, as the server has them."""
        each = ", ".join(f"CONVERT(_{name} X'{byte:02x}' USING utf8mb4)" for byte in range(256))
        (characters,) = ask(self._connection, f"SELECT {each}")
        return "".join(str(character) or " " for character in characters)
