"""What is stored: read by the document's table alone, and every byte of it guarded."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import brotli
import pytest

from tailrace.errors import Damaged
from tailrace.events import Event, Events
from tailrace.storage.calls import Store
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.testing import SimulatedObjects

NAME = "Cart-1"
ITEM = {"p": str, "i": int, "b": int, "etag": str, "e": list, "c": list, "u": list, "a": int, "n": int}
EVENT = {"t": str, "D": int, "d": bytes, "M": int, "m": bytes, "x": str, "y": str}
UNFOLD = {"i": int, "c": str, "t": str, "D": int, "d": bytes, "M": int, "m": bytes}
EXTRA = {"k", "floor", "id"}
"""Ours beside the document's: checksums, what was pruned, event ids."""


def known(attributes: Any, table: dict[str, type]) -> dict[str, Any]:
    """An item, event or unfold as one knows it who has the document alone."""
    assert {*attributes} - {*table} <= EXTRA
    for name, kind in table.items():
        assert isinstance(attributes.get(name, kind()), kind)
    return {name: attributes[name] for name in table if name in attributes}


def body(one: dict[str, Any], data: str, encoding: str) -> bytes:
    raw: bytes = one.get(data, b"")
    return {0: lambda b: b, 1: lambda b: zlib.decompress(b, -15), 2: brotli.decompress}[one.get(encoding, 0)](raw)


@pytest.mark.parametrize("compression", ["none", "deflate", "brotli"])
def test_the_document_is_enough_to_read_it(store: Store, compression: str) -> None:
    stream = Events(store, compression=compression, max_events=2).stream(NAME)
    given = [Event(f"T{n}", b"%d" % n * 60, b"m" * n * 30, correlation="x" * n, causation="y" * n) for n in range(7)]
    for at in range(0, 6, 2):
        stream.append(given[at : at + 2], expected=at)
    stream.append(given[6:], unfolds=[Event("Snap", b"s" * 99, b"m" * 99)], expected=6)

    items = [known(item, ITEM) for item in store.table.query(NAME).items]
    *calves, tip = sorted(items, key=lambda item: int(item["i"]))
    assert (tip["i"], tip["n"], tip["a"], tip["p"]) == (2147483647, 7, 1, NAME)
    assert [(calf["i"], calf["n"]) for calf in calves] == [(0, 2), (2, 4), (4, 6)]
    assert all({*calf} == {"p", "i", "e", "c", "n"} for calf in calves)
    index = 0
    for item in items:
        assert item["n"] - len(item["e"]) == index
        for type, one in zip(item["c"], [known(e, EVENT) for e in item["e"]], strict=True):
            expected = given[index]
            assert (type, one.get("x", ""), one.get("y", "")) == (
                expected.type,
                expected.correlation,
                expected.causation,
            )
            assert (body(one, "d", "D"), body(one, "m", "M")) == (expected.data, expected.meta)
            assert one["t"].endswith("+00:00")
            index += 1
    (unfold,) = (known(u, UNFOLD) for u in tip["u"])
    assert (unfold["i"], unfold["c"], body(unfold, "d", "D"), body(unfold, "m", "M")) == (
        7,
        "Snap",
        b"s" * 99,
        b"m" * 99,
    )
    assert index == 7
    assert tip["b"] == sum(len(e.type) + 40 + len(e.correlation) * 2 for e in given[:6]) + sum(
        len(one.get("d", b"")) + len(one.get("m", b"")) for calf in calves for one in calf["e"]
    )


def test_an_item_that_knows_only_the_document_is_read_and_appended_to(store: Store) -> None:
    from tailrace.storage.tables import Absent, Key, Put

    event = {"t": "2020-01-01T00:00:00Z", "d": zlib.compress(b"a" * 50, wbits=-15), "D": 1}
    tip = {"e": [event], "c": ["Old"], "u": [], "a": 1, "n": 3, "b": 93, "etag": "abc"}
    store.table.write(Put(Key(NAME, 2147483647), tip, (Absent(),)))
    store.table.write(Put(Key(NAME, 0), {"e": [{"t": "T"}, {"t": "T"}], "c": ["A", "B"], "n": 2}, (Absent(),)))
    stream = Events(store, max_events=2).stream(NAME)
    assert [(e.type, e.data) for e in stream.read()] == [("A", b""), ("B", b""), ("Old", b"a" * 50)]
    stream.append([Event("New")] * 2, expected=3)
    stream.append([Event("Newer")], expected=5)
    assert [e.type for e in stream.read(backwards=True)] == ["Newer", "New", "New", "Old", "B", "A"]


def test_no_flipped_byte_goes_unnoticed(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "tailrace.db", durable=False)
    table = SqliteTable(database)
    store = Store(table, SimulatedObjects())
    stream = Events(store, max_events=2).stream(NAME)
    for n in range(2):
        stream.append([Event("A", b"%d" % n * 60, b"m", f"i{n}"), Event("B", b"raw", id=f"j{n}")])
    stream.append([], unfolds=[Event("Snap", b"state")])

    def seen() -> Any:
        tip = stream.tip()
        return [*stream.read()], [*stream.read(backwards=True)], tip.unfolds(), tip.version

    before = seen()
    rows = database.read(lambda cursor: [*cursor.execute("SELECT n, i, body FROM items WHERE p = ?", (NAME,))])
    caught = 0
    for number, _, whole in rows:
        for at in range(len(whole)):
            flipped = bytes([*whole[:at], whole[at] ^ (1 << at % 8), *whole[at + 1 :]])
            store_body(database, number, flipped)
            try:
                assert seen() == before
            except Damaged as error:
                caught += NAME in str(error)
        store_body(database, number, whole)
    assert caught > sum(len(whole) for _, _, whole in rows) * 3 // 4
    assert seen() == before
    table.close()


def store_body(database: SqliteDatabase, number: int, body: bytes) -> None:
    database.write(lambda cursor: cursor.execute("UPDATE items SET body = ? WHERE n = ?", (body, number)) and None)
