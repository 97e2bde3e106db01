"""Decoding, from bytes that a server has sent."""

from __future__ import annotations

import struct

from tailrace.adaptors.postgres.source.decoder import Decoder
from tailrace.adaptors.postgres.source.pgoutput import (
    UNSET,
    Relation,
    Row,
    read_begin,
    read_commit,
    read_relation,
    read_row,
)
from tailrace.log.record import Op

RELATION = bytes.fromhex("52000040007075626c69630074006400020169640000000014ffffffff00610000000019ffffffff")
BEGIN = b"B" + struct.pack(">QqI", 0x1731828, 848_000_000_000_000, 756)
COMMIT = b"C" + struct.pack(">BQQq", 0, 0x1731828, 0x1731858, 848_000_000_000_000)
OID = 0x4000


def row(*values: bytes | object | None) -> bytes:
    out = struct.pack(">H", len(values))
    for value in values:
        if isinstance(value, bytes):
            out += b"t" + struct.pack(">I", len(value)) + value
        else:
            out += b"n" if value is None else b"u"
    return out


def about(kind: bytes, rest: bytes) -> bytes:
    return kind + struct.pack(">I", OID) + rest


class Target:
    def __init__(self, heard: list, keys: tuple[int, ...] = (0,)) -> None:
        self.heard, self.keys = heard, keys

    def add(self, op: Op, row: Row, *, moved: bool = False) -> None:
        self.heard.append((op, row, moved) if moved else (op, row))

    def truncate(self) -> None:
        self.heard.append("truncate")


class Collector:
    def __init__(self, keys: tuple[int, ...] = (0,)) -> None:
        self.heard: list = []
        self.size = 0
        self.keys = keys

    def begin(self, lsn: int, time: int, xid: int) -> None:
        self.heard.append(("begin", xid))

    def relation(self, relation: Relation) -> Target:
        return Target(self.heard, self.keys)

    def relation_again(self, relation: Relation) -> None:
        self.heard.append(("again", relation.namespace))

    def commit(self, end: int, time: int) -> None:
        self.heard.append(("commit", end))


def decoded(*messages: bytes, keys: tuple[int, ...] = (0,)) -> list:
    collector = Collector(keys)
    decoder = Decoder(collector)
    for message in messages:
        decoder.feed(b"header" + message, 6)
    decoder.close()
    assert decoder.between
    return collector.heard


def test_messages() -> None:
    assert read_begin(BEGIN, 0) == (0x1731828, 1_794_684_800_000, 756)
    assert read_commit(COMMIT, 0) == (0x1731828, 0x1731858, 1_794_684_800_000)
    relation = read_relation(RELATION, 0)
    assert (relation.oid, relation.namespace, relation.identity) == (OID, "public.t", "d")
    assert [(c.name, c.type, c.modifier, c.key) for c in relation.columns] == [
        ("id", 20, -1, True),
        ("a", 25, -1, False),
    ]
    assert read_row(b"??" + row(b"1", None, UNSET, b""), 2) == ([b"1", None, UNSET, b""], 17)


def test_a_transaction() -> None:
    heard = decoded(
        RELATION,
        BEGIN,
        about(b"I", b"N" + row(b"1", b"x")),
        about(b"U", b"N" + row(b"1", UNSET)),
        about(b"U", b"K" + row(b"1", None) + b"N" + row(b"2", UNSET)),
        about(b"U", b"O" + row(b"2", b"y") + b"N" + row(b"2", UNSET)),
        about(b"D", b"K" + row(b"2", None)),
        b"T" + struct.pack(">IBI", 1, 0, OID),
        b"M" + b"ignored",
        COMMIT,
    )
    assert heard == [
        ("begin", 756),
        (Op.INSERT, [b"1", b"x"]),
        (Op.UPDATE, [b"1", UNSET]),
        (Op.DELETE, [b"1", UNSET]),
        (Op.INSERT, [b"2", UNSET], True),
        (Op.UPDATE, [b"2", b"y"]),
        (Op.DELETE, [b"2", UNSET]),
        "truncate",
        ("commit", 0x1731858),
    ]


def test_a_table_that_is_described_once_more() -> None:
    """So the log does before the first change of each partition."""
    assert decoded(RELATION, BEGIN, RELATION, COMMIT)[1] == ("again", "public.t")


def test_without_a_key_an_update_is_a_delete_and_an_insert() -> None:
    same = about(b"U", b"O" + row(b"1", b"x") + b"N" + row(b"1", UNSET))
    other = about(b"U", b"O" + row(b"1", b"x") + b"N" + row(b"1", b"y"))
    heard = decoded(RELATION, BEGIN, same, other, COMMIT, keys=())
    assert heard[1:-1] == [(Op.DELETE, [b"1", b"x"]), (Op.INSERT, [b"1", b"y"], True)]


def streamed(message: bytes, part: int) -> bytes:
    return message[:1] + struct.pack(">I", part) + message[1:]


def test_streamed_transactions() -> None:
    """They come when they commit, in that order, without what was rolled back."""
    start = {xid: b"S" + struct.pack(">IB", xid, 0) for xid in (10, 20, 30)}
    insert = {n: about(b"I", b"N" + row(str(n).encode(), b"x")) for n in range(6)}
    commit = struct.pack(">BQQq", 0, 5, 6, 0)
    heard = decoded(
        start[10], streamed(RELATION, 10), streamed(insert[0], 10), streamed(insert[1], 11), b"E",
        start[20], streamed(RELATION, 20), streamed(insert[2], 20), b"E",
        start[30], streamed(RELATION, 30), streamed(insert[5], 30), b"E",
        start[10], streamed(insert[3], 12), streamed(insert[4], 10), b"E",
        b"A" + struct.pack(">II", 10, 11),
        b"A" + struct.pack(">II", 30, 30),
        b"c" + struct.pack(">I", 20) + commit,
        b"c" + struct.pack(">I", 10) + commit,
    )  # fmt: skip
    heard = ["again" if entry[0] == "again" else entry for entry in heard]
    assert [entry if entry[0] in ("begin", "commit") or entry == "again" else entry[1][0] for entry in heard] == [
        ("begin", 20), b"2", ("commit", 6), ("begin", 10), "again", b"0", b"3", b"4", ("commit", 6),
    ]  # fmt: skip
