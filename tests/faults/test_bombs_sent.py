"""Bombs that others send: requests over HTTP, events, messages and binlogs of other systems, with 1 GiB of memory."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pyarrow as pa
import pytest

from tests.faults import limited
from tests.faults.test_bombs import MIB, arrow_false_size, arrow_nulls, arrow_zeros

# --- requests
ASK = """
import pathlib, tailrace
from tests.console.serving import running
body = pathlib.Path(sys.argv[2]).read_bytes()
with tailrace.open(sys.argv[1]) as home:
    home.topic("a", partitions=1)
with running(sys.argv[1]) as client:
    done = client.post("topics/a/records", body, Content_Type=sys.argv[3])
    print(done.status, done.body.decode())
    print(client.post("topics/a/records", {"records": [{"value": "x"}]}).status)
"""


def arrow_of_many_nulls(path: Path) -> None:
    """A million rows in a message of no bytes, again and again."""
    batch = pa.record_batch({"value": pa.nulls(1_000_000)})
    with pa.ipc.new_stream(path, batch.schema) as writer:
        for _ in range(1000):
            writer.write_batch(batch)


def arrow_of_many_zeros(path: Path) -> None:
    """Batches of which each may be decoded, and all together not."""
    batch = pa.record_batch({"value": pa.array([bytes(10 * MIB)] * 2)})
    with pa.ipc.new_stream(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(30):
            writer.write_batch(batch)


def json_of_many_records(path: Path) -> None:
    path.write_bytes(b'{"records":[' + b"{}," * (20 * MIB) + b"{}]}")


def lines_of_many_records(path: Path) -> None:
    path.write_bytes(b"{}\n" * (20 * MIB))


def lines_of_nothing(path: Path) -> None:
    path.write_bytes(b"\n" * (20 * MIB) + b"{}")


JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
REQUESTED = [
    (arrow_false_size, ARROW, 400, "needs 1,099,511,6"),
    (arrow_nulls, ARROW, 400, "says that it has 1,099,511,627,776 rows"),
    (arrow_zeros, ARROW, 400, "once uncompressed"),
    (arrow_of_many_nulls, ARROW, 413, "at most 1,000,000 records"),
    (arrow_of_many_zeros, ARROW, 413, "once decoded"),
    (json_of_many_records, JSON, 413, "opening brackets"),
    (lines_of_many_records, NDJSON, 413, "at most 1,000,000 records"),
    (lines_of_nothing, NDJSON, 201, ""),
]


@pytest.mark.parametrize(("make", "media", "status", "why"), REQUESTED, ids=[make.__name__ for make, *_ in REQUESTED])
def test_a_request_is_answered_in_bounded_memory(
    tmp_path: Path, make: Callable[[Path], None], media: str, status: int, why: str
) -> None:
    make(tmp_path / "body")
    done = limited.python(ASK, str(tmp_path / "home"), str(tmp_path / "body"), media)
    assert done.returncode == 0, done.stderr
    answer, after = done.stdout.splitlines()
    assert answer.startswith(f"{status} "), answer
    assert why in answer
    assert after == "201"


# --- events
EXPAND = """
import pathlib
from tailrace.errors import Damaged
from tailrace.events.payload import expand
try:
    print(len(expand(int(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes(), "s", 1)))
except Damaged as error:
    print(error)
"""


@pytest.mark.parametrize(("encoding", "size"), [(1, 256 * MIB), (1, 400 * MIB), (2, 256 * MIB), (2, 900 * MIB)])
def test_an_event_is_unpacked_in_bounded_memory(tmp_path: Path, encoding: int, size: int) -> None:
    packer: Any = zlib.compressobj(9, wbits=-15) if encoding == 1 else brotli.Compressor(quality=5)
    pack = packer.compress if encoding == 1 else packer.process
    packed = (
        b"".join(pack(bytes(MIB)) for _ in range(size // MIB)) + (packer.flush if encoding == 1 else packer.finish)()
    )
    assert len(packed) < 600_000
    (tmp_path / "packed").write_bytes(packed)
    done = limited.python(EXPAND, str(encoding), str(tmp_path / "packed"))
    expected = str(size) if size == 256 * MIB else "which no writer stores"
    assert expected in done.stdout, done.stderr


# --- messages of other systems
AVRO = """
import pathlib, json
from tailrace.adaptors.formats import avro
try:
    read = avro.reader(json.loads(sys.argv[1]), {})
    print("read", len(read(pathlib.Path(sys.argv[2]).read_bytes())))
except (ValueError, RecursionError) as error:
    print(type(error).__name__, error)
"""
LONG = b"\xfe\xff\xff\xff\xff\xff\xff\x7f"
NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        ({"type": "array", "items": "null"}, LONG, "values that take no bytes"),
        ({"type": "map", "values": {"type": "array", "items": NOTHING}}, LONG, "values that take no bytes"),
        (LIST, b"\x02" * MIB, "RecursionError"),
        (LIST, b"\x02" * 20 + b"\0", "read 1"),
        ({"type": "array", "items": "long"}, b"\x06\x02\x02\x02\0", "read 3"),
    ],
)
def test_avro_is_read_in_bounded_memory(tmp_path: Path, schema: Any, data: bytes, expected: str) -> None:
    (tmp_path / "value").write_bytes(data)
    done = limited.python(AVRO, json.dumps(schema), str(tmp_path / "value"))
    assert expected in done.stdout, (done.returncode, done.stderr)


BINLOG = """
import pathlib
from tailrace.adaptors.mysql.source import events
from tailrace.errors import Damaged
data = pathlib.Path(sys.argv[2]).read_bytes()
try:
    if sys.argv[1] == "inflated":
        print(len(events.inflated(data)))
    else:
        print(sum(len(event) for event in events.read_payload(data)))
except Damaged as error:
    print(error)
"""


def field(kind: int, value: int) -> bytes:
    return bytes([kind, 9, 0xFE]) + struct.pack("<Q", value)


def compressed_transaction(events: int, size: int, whole: int) -> bytes:
    """An event of MySQL's with a transaction of so many events of zeros, and what it says it has in all."""
    one = struct.pack("<IBIIIH", 0, 16, 1, size, 0, 0) + bytes(size - 19)
    with pa.BufferOutputStream() as out:
        with pa.CompressedOutputStream(out, "zstd") as packer:
            for _ in range(events):
                packer.write(one)
        packed = out.getvalue().to_pybytes()
    return bytes(19) + field(3, whole) + field(1, len(packed)) + field(2, 0) + b"\0" + packed


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("inflated", b"\x84" + struct.pack(">I", 10) + zlib.compress(bytes(800 * MIB), 9), "and has more"),
        ("inflated", b"\x84" + struct.pack(">I", 1 << 30) + zlib.compress(bytes(10), 9), "and has fewer"),
        ("inflated", b"\x85" + struct.pack(">Q", 1 << 36)[3:] + zlib.compress(bytes(10), 9), "more than a server can"),
        ("payload", compressed_transaction(30, 40 * MIB, 1200 * MIB), str(1200 * MIB)),
        ("payload", compressed_transaction(30, 40 * MIB, 60 * MIB), "and 20,971,520 are left"),
        ("payload", compressed_transaction(1, 40 * MIB, 1 << 50), str(40 * MIB)),
    ],
    ids=["more", "fewer", "lie", "many", "too many", "declared"],
)
def test_a_binlog_is_unpacked_in_bounded_memory(tmp_path: Path, kind: str, data: bytes, expected: str) -> None:
    (tmp_path / "data").write_bytes(data)
    done = limited.python(BINLOG, kind, str(tmp_path / "data"))
    assert expected in done.stdout, done.stderr
