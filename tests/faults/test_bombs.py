"""Bombs: a little that becomes very much.  Every reader of bytes that others wrote, with 1 GiB of memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.log.write.attempt import roll
from tests.faults import limited

MIB = 1 << 20
COUNT = 1200
"""Records of 1 MiB: more than there is memory for."""


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a compressed topic: more zeros than fit into memory, in one object."""
    folder = tmp_path_factory.mktemp("bombs")
    with tailrace.open(folder) as home:
        topic = home.topic("zeros", partitions=1, compression="zstd", merge_bytes=8 * MIB)
        with topic.producer() as out:
            for n in range(COUNT):
                out.send(None, bytes(MIB), timestamp=1_000_000 + n)
        home.upkeep()
    return folder


READ = """
import tailrace
home = tailrace.open(sys.argv[1])
topic = home.topic("zeros")
print(sum(batch.num_rows for batch in topic.read()))
print(sum(len(record.value) for record in topic.records(0, 700)))
with topic.consumer("readers", start="earliest", max_seconds=60) as consumer:
    print(sum(1 for _, record in zip(range(1200), consumer)))
"""


def test_a_compressed_topic_is_read_in_bounded_memory(zeros: Path) -> None:
    done = limited.python(READ, str(zeros))
    assert done.stdout.split() == [str(COUNT), str((COUNT - 700) * MIB), str(COUNT)], done.stderr


def test_a_compressed_topic_is_scrubbed_in_bounded_memory(zeros: Path) -> None:
    done = limited.tailrace("scrub", "--home", str(zeros))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"read {COUNT:,} records" in done.stdout


COMPACT = """
import tailrace
home = tailrace.open(sys.argv[1])
print(home.upkeep(), file=sys.stderr)
topic = home.topic("zeros")
print(sum(len(batch) for batch in topic.read()))
"""


def test_compressed_keys_are_taken_in_in_bounded_memory(tmp_path: Path) -> None:
    """One object has more bytes of keys than there is memory for."""
    with tailrace.open(tmp_path) as home:
        topic = home.topic("keys", partitions=1, compression="zstd", compact=True, merge_bytes=8 * MIB)
        with topic.producer() as out:
            for n in range(COUNT):
                out.send(b"%d" % (n % 3) + bytes(MIB), b"v", timestamp=1_000_000 + n)
        topic.store.run(roll(topic.log, topic.store.run(topic.log.head())))
    done = limited.python(COMPACT.replace('"zeros"', '"keys"'), str(tmp_path))
    assert done.stdout.split() == ["3"], done.stderr


def test_a_compressed_topic_is_compacted_in_bounded_memory(tmp_path: Path) -> None:
    """One object has many times more than there is memory for, and what stays of it is more than that, too."""
    with tailrace.open(tmp_path) as home:
        topic = home.topic("zeros", partitions=1, compression="zstd", compact=True, merge_bytes=8 * MIB)
        with topic.producer() as out:
            for n in range(COUNT + 100):
                out.send(b"%d" % (n % COUNT), bytes(MIB), timestamp=1_000_000 + n)
        topic.store.run(roll(topic.log, topic.store.run(topic.log.head())))  # only closed pages are compacted
    done = limited.python(COMPACT, str(tmp_path))
    assert done.stdout.split() == [str(COUNT)], done.stderr


# --- segments
def segment(folder: Path, header: bytes, size: int) -> Path:
    """An export of one segment, almost all of it a hole."""
    (folder / "0").mkdir(parents=True)
    path = folder / "0" / f"{0:020d}.log"
    path.write_bytes(header)
    os.truncate(path, size)
    return folder


def test_a_segment_whose_entry_says_that_it_has_2_gib_is_refused(tmp_path: Path) -> None:
    length = 2 << 30
    export = segment(tmp_path / "export", struct.pack(">QIQBI", 0, length, 0, 0x20, 0), length + 21)
    with tailrace.open(tmp_path / "home") as home:
        home.topic("a", partitions=1)
    done = limited.tailrace("topic", "import", "a", str(export), "--home", str(tmp_path / "home"))
    assert done.returncode == 1
    assert "tailrace: " in done.stderr[:10]
    assert "says that it has 2,147,483,669 bytes" in done.stderr


def test_a_segment_of_zeros_is_a_torn_end(tmp_path: Path) -> None:
    export = segment(tmp_path / "export", b"", 1200 * MIB)
    with tailrace.open(tmp_path / "home") as home:
        home.topic("a", partitions=1)
    done = limited.tailrace("topic", "import", "a", str(export), "--home", str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert "torn at 0, before any entry" in done.stderr
    assert "imported 0 records" in done.stdout


# --- files
ROWS, VALUE = 1200, bytes(MIB)


def parquet_dictionary(path: Path) -> None:
    """Some kilobytes: one value, and so many rows that have it."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array([VALUE]))
    pq.write_table(pa.table({"value": column}), path, compression="zstd", store_schema=False)


def parquet_page(path: Path) -> None:
    """One value of 300 MiB of zeros."""
    values = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 300 * MIB)), pa.py_buffer(bytes(300 * MIB))]
    )
    pq.write_table(pa.table({"value": values}), path, compression="zstd", use_dictionary=False, write_statistics=False)


def parquet_list(path: Path) -> None:
    """One row with a list of forty million nulls, which take no bytes at all."""
    count = 40_000_000
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.int32()))
    pq.write_table(pa.table({"value": lists}), path, compression="zstd")


def arrow_stream(path: Path, batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    with pa.ipc.new_stream(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return path.read_bytes()


def arrow_false_size(path: Path) -> None:
    """A compressed buffer that says that it has a terabyte once uncompressed."""
    data = arrow_stream(path, pa.record_batch({"value": pa.array([b"x" * 12345])}), "zstd")
    size = struct.pack("<q", 12345)
    assert data.count(size) == 2  # in the buffer and among the offsets' bytes
    path.write_bytes(data.replace(size, struct.pack("<q", 1 << 40)))


def arrow_small_lie(path: Path) -> None:
    """A compressed buffer that says a little too much."""
    data = arrow_stream(path, pa.record_batch({"value": pa.array([b"x" * 12345])}), "zstd")
    path.write_bytes(data.replace(struct.pack("<q", 12345), struct.pack("<q", 12346)))


def arrow_nulls(path: Path) -> None:
    """A trillion rows in no bytes."""
    data = arrow_stream(path, pa.record_batch({"a": pa.nulls(12345)}))
    path.write_bytes(data.replace(struct.pack("<q", 12345), struct.pack("<q", 1 << 40)))


def arrow_zeros(path: Path) -> None:
    """A batch of 300 MiB of zeros."""
    arrow_stream(path, pa.record_batch({"value": pa.array([bytes(30 * MIB)] * 10)}), "zstd")


def arrow_offsets(path: Path) -> None:
    """Values that begin and end outside of the batch's bytes."""
    offsets = struct.pack("<ii", 5000, 5010)
    data = arrow_stream(path, pa.record_batch({"value": pa.array([b"x" * 10])}))
    assert data.count(struct.pack("<ii", 0, 10)) >= 1
    path.write_bytes(data.replace(struct.pack("<ii", 0, 10), offsets))


def json_deep(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n{"a":' + b"[" * 1100 + b"]" * 1100 + b"}\n")


def json_brackets(path: Path) -> None:
    """Fifteen megabytes of lists that are half a gigabyte of objects."""
    path.write_bytes(b'{"a":[' + b"[]," * (5 * MIB) + b"[]]}\n")


def json_long(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"a":"')
        file.truncate(2 << 30)


def csv_quote(path: Path) -> None:
    """A quote that is never closed."""
    with path.open("wb") as file:
        file.write(b'a,b\n1,"')
        for _ in range(80):
            file.write(b"x," * (MIB // 2) + b"\n")


APPENDED = [
    (parquet_dictionary, "bomb.parquet", None),
    (parquet_page, "bomb.parquet", "one row may need"),
    (parquet_list, "bomb.parquet", "one row may need"),
    (arrow_false_size, "bomb.arrow", "needs 1,099,511,6"),
    (arrow_small_lie, "bomb.arrow", "is no arrow file, or is damaged"),
    (arrow_nulls, "bomb.arrow", "says that it has 1,099,511,627,776 rows"),
    (arrow_zeros, "bomb.arrow", "once uncompressed"),
    (arrow_offsets, "bomb.arrow", "is no arrow file, or is damaged"),
    (json_deep, "bomb.jsonl", "bomb.jsonl, line 2: its JSON is nested too deep; 1 record before it appended"),
    (json_brackets, "bomb.jsonl", None),
    (json_long, "bomb.jsonl", "bomb.jsonl, line 1: it has more bytes than a record"),
    (csv_quote, "bomb.csv", "field larger than field limit"),
]


@pytest.mark.parametrize(("make", "name", "refused"), APPENDED, ids=[make.__name__ for make, *_ in APPENDED])
def test_a_file_is_appended_in_bounded_memory_or_refused(
    tmp_path: Path, make: Callable[[Path], None], name: str, refused: str | None
) -> None:
    make(tmp_path / name)
    with tailrace.open(tmp_path / "home") as home:
        home.topic("a", partitions=1, compression="zstd")
    done = limited.tailrace("topic", "append", "a", str(tmp_path / name), "--home", str(tmp_path / "home"))
    assert "Traceback" not in done.stderr
    if refused is None:
        assert done.returncode == 0, done.stderr
        assert "appended " in done.stdout
    else:
        assert done.returncode == 1
        assert refused in done.stderr


READER = """
import pathlib
from tailrace.adaptors.file.source.reader import FileReader
from tailrace.adaptors.file.settings import FileSource
from tailrace.errors import TailraceError
path = pathlib.Path(sys.argv[1])
reader = FileReader(FileSource(path=str(path), follow=False))
try:
    names = [one.name for one in reader.namespaces()]
    reader.begin(names)
    pieces = [piece for name in names for piece in reader.pieces(name, 100_000)]
    print(sum(batch.num_rows for piece in pieces for batch in reader.copy(piece)))
except TailraceError as error:
    print("refused:", error)
"""

COPIED = [
    (parquet_dictionary, "bomb.parquet", "1200"),
    (parquet_page, "bomb.parquet", "one row may need"),
    (parquet_list, "bomb.parquet", "one row may need"),
    (json_deep, "bomb.jsonl", "bomb.jsonl, line 2: its JSON is nested too deep"),
    (json_brackets, "bomb.jsonl", "there is not enough memory to decode"),
    (json_long, "bomb.jsonl", "a row of more than 64 MiB at byte"),
    (csv_quote, "bomb.csv", "a row of more than 64 MiB at byte"),
]


@pytest.mark.parametrize(("make", "name", "expected"), COPIED, ids=[make.__name__ for make, *_ in COPIED])
def test_a_file_is_copied_by_a_pipeline_in_bounded_memory_or_refused(
    tmp_path: Path, make: Callable[[Path], None], name: str, expected: str
) -> None:
    make(tmp_path / name)
    done = limited.python(READER, str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
