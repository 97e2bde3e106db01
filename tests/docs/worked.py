"""The worked examples of docs/formats, made by the code.  `python -m tests.docs.worked` prints them for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import ChunkEntry, Head
from tailrace.log.interchange.entry import ENTRIES, encode, joined
from tailrace.log.record import Mode, Op, attributes
from tailrace.log.write.buffer import Buffer
from tailrace.storage.evaluation import changed
from tailrace.storage.tables import LAST

TOPIC = "8d2c2441ee6aa621"
ID = "3f9a61c0b5d27e8444a1c9d0"
TIME = 1_700_000_000_000


def hexdump(data: bytes, at: int = 0) -> str:
    """Bytes, sixteen a line, with their positions."""
    lines = []
    for n in range(0, len(data), 16):
        row = data[n : n + 16]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at + n:04x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines) + "\n"


def chunk() -> Chunk:
    """Three records of two partitions."""
    buffer = Buffer(4, 1 << 20)
    buffer.add(b"ann", b"hello", TIME, partition=0)
    buffer.add(b"bob", None, TIME + 1, attributes=attributes(Mode.SYNC, Op.DELETE), partition=2)
    buffer.add(None, b"", TIME, partition=2)
    return buffer.encode("none")


def runs_of_the_chunk() -> str:
    """Where its runs lie."""
    made = chunk()
    head = f"chunk of {made.size} bytes, kind {made.kind}: schema {made.runs[0].position}, "
    lines = [head + ", ".join(f"run of {run.length}" for run in made.runs) + ", end mark 8\n"]
    for r in made.runs:
        place = f"partition {r.partition}: {r.count} records at {r.position}, {r.length} bytes"
        lines.append(f"{place}, crc32c {r.crc:08x}, latest {r.latest}, span {r.span}\n")
    return "".join(lines)


def end_of_the_chunk() -> str:
    """The buffers of its last run, and the end mark."""
    made = chunk()
    data, begin = b"".join(made.parts), made.size - 8 - 80
    return hexdump(data[begin:], begin)


def entry() -> ChunkEntry:
    """The entry of that chunk, kept in an item."""
    _, runs = chunk().inline()
    return ChunkEntry(ID, True, 3, 0, runs)


def entry_in_the_head() -> str:
    """An entry, packed and read back."""
    packed = heads.pack(entry())
    return f"{hexdump(packed)}\n{msgspec.json.encode(msgspec.msgpack.decode(packed)).decode()}\n"


def head_before() -> Mapping[str, Any]:
    """A head that has been used for a while: page 7, ten and twenty records in partitions 0 and 2."""
    fresh = changed(None, heads.new_head(TOPIC, 4))
    assert fresh is not None
    return {**fresh, "page": 7, "gen": 3, "gc": 2, "t": TIME - 1, "nx": {"0": 10, "1": 0, "2": 20, "3": 0}}


def head_after() -> Mapping[str, Any]:
    """The same after APPEND."""
    after = changed(head_before(), heads.append(TOPIC, 7, [entry()]))
    assert after is not None
    return after


def _item(item: Mapping[str, Any]) -> str:
    shown = {
        name: sorted(value)
        if isinstance(value, frozenset)
        else [f"<{len(e)} bytes>" for e in value]
        if name == "e"
        else value
        for name, value in item.items()
    }
    return "".join(f"{name:<7} {msgspec.json.encode(value).decode()}\n" for name, value in shown.items())


def append_to_the_head() -> str:
    """The head before and after APPEND, attribute by attribute."""
    return f"before\n{_item(head_before())}\nafter\n{_item(head_after())}"


def roll_of_the_head() -> str:
    """The page that ROLL puts, and the head it leaves."""
    put, update = heads.roll(TOPIC, Head(head_after()))
    page, head = changed(None, put), changed(head_after(), update)
    assert page is not None
    assert head is not None
    return f"page\n{_item(page)}\nhead\n{_item(head)}"


def keys_of_the_chunk() -> str:
    """Where the chunk's bytes are, small and large."""
    key = heads.chunk_key(TOPIC, 3, ID)
    assert key.i >> heads.ID_BITS == 3
    assert key.i < LAST
    return f"item    p={key.p} i={key.i}\nobject  {heads.object_name(TOPIC, 3, ID)}\n"


def entries() -> str:
    """Two entries of the interchange format."""
    rows = [(0, 1_491_252_302, 0, b"key", b"value"), (1, TIME, attributes(Mode.SYNC, Op.DELETE), b"bob", None)]
    columns = zip(zip(*rows, strict=True), ENTRIES, strict=True)
    batch = pa.record_batch([pa.array(list(c), f.type) for c, f in columns], schema=ENTRIES)
    return hexdump(bytes(joined(encode(batch))))


PAGES = {
    "chunk.md": [runs_of_the_chunk, end_of_the_chunk],
    "head.md": [entry_in_the_head, append_to_the_head, roll_of_the_head, keys_of_the_chunk],
    "entry.md": [entries],
}

if __name__ == "__main__":
    for page, examples in PAGES.items():
        for example in examples:
            print(f"--- {page}: {example.__name__}\n```\n{example()}```")
