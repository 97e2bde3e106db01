"""Transactions and pieces of any size: all of one in one commit, and never more of it in memory than a little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.coordination import guard
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.record import Mode
from tailrace.log.write import staged_chunk
from tailrace.log.write.staged_chunk import stage_chunks
from tailrace.pipeline.ingest.coalesce import MAX_BYTES, joined_rows
from tailrace.pipeline.ingest.commit_log import CommitLog, Piece
from tests.adaptors.postgres.place import Place
from tests.servers.postgres import postgres

MIB = 1024 * 1024
ALLOWED = 96 * MIB
"""How much more memory a large transaction may take than a small one: some chunks that are made and written."""

MEASURED = """
import sys, threading, time
import pyarrow as pa

peak, done = [0], threading.Event()
def anonymous():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["RssAnon"].split()[0]) * 1024
def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], anonymous())
"""
TAKEN_IN = (
    MEASURED
    + """
import tailrace
from tailrace.adaptors.contract import Changes, Reader
from tailrace.adaptors.rows.overflow import Overflow
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.following import SourceReceiver
from tailrace.pipeline.runtime.status import Status

home, mib = sys.argv[1], int(sys.argv[2])
held = Overflow(4 * 1024 * 1024)
for n in range(mib):
    columns = {"id": pa.array(range(64 * n, 64 * n + 64)), "v": pa.array(["v" * 16384] * 64)}
    held.append(make_rows("public.t", pa.record_batch(columns), ["id"], mode=Mode.SYNC, timestamp=n))
class Source(Reader):
    def check(self):
        pass
    def follow(self, position, namespaces, split=""):
        yield Changes(held.take(), 1)
        while True:
            yield Changes([], 1)
    def acknowledge(self, position):
        pass
with tailrace.open(home) as opened:
    log = CommitLog(opened, "shop")
    log.begin(0)
    threading.Thread(target=watch, daemon=True).start()
    SourceReceiver(Source(), log, Status("shop"), threading.Event(), print).run(once=True)
    done.set()
    print(peak[0], sum(end for _, end in log.topic.ends().values()))
"""
)


def peak_of(script: str, *arguments: object) -> tuple[int, int]:
    """A script's highest use of memory that is not a file's, and how many records it left."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.split()[-2:]
    return int(first), int(second)


def test_memory_does_not_grow_with_a_transaction(tmp_path: Path) -> None:
    small, few = peak_of(TAKEN_IN, tmp_path / "small", 8)
    large, many = peak_of(TAKEN_IN, tmp_path / "large", 320)
    assert (few, many) == (8 * 64, 320 * 64)
    assert large < small + ALLOWED


def test_what_is_joined_has_a_cap() -> None:
    def batch(n: int, size: int) -> pa.RecordBatch:
        columns = {"id": pa.array([n]), "v": pa.array(["v" * size])}
        return make_rows("t", pa.record_batch(columns), ["id"], mode=Mode.SYNC)

    small = list(joined_rows(batch(n, 10) for n in range(1000)))
    assert [one.num_rows for one in small] == [1000]
    large = list(joined_rows(batch(n, MIB) for n in range(40)))
    assert max(one.nbytes for one in large) <= MAX_BYTES
    assert sum(one.num_rows for one in large) == 40


def test_a_large_batch_is_put_as_chunks_of_a_few_mebibytes() -> None:
    columns = {"id": pa.array(range(40)), "v": pa.array(["v" * MIB] * 40)}
    large = make_rows("t", pa.record_batch(columns), ["id"], mode=Mode.SYNC)
    with tailrace.open("memory://") as home:
        topic = CommitLog(home, "shop").topic
        made = stage_chunks(home.store, topic.log, topic.described, [large])
    assert made.records == 40
    assert max(heads.unpack(entry).size for entry in made.entries) <= 2 * staged_chunk.CHUNK_BYTES


@pytest.mark.parametrize("inline", [True, False])
def test_a_piece_of_very_many_chunks_is_one_commit(
    tmp_path: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a piece of 20 GiB has: in the head their entries had no room, which stopped the copy for good."""
    monkeypatch.setattr(staged_chunk, "CHUNK_BYTES", 6000)
    with tailrace.open("memory://") as home:
        log = CommitLog(home, "shop", partitions=100)
        log.begin(0)
        log.plan("t", [Piece("t")])
        if not inline:
            log.topic.log.inline_bytes = 0
        ids = (pa.array(range(n, n + 256)) for n in range(0, 76_800, 256))
        rows = (make_rows("t", pa.record_batch({"id": some}), ["id"]) for some in ids)
        made = stage_chunks(home.store, log.topic.log, log.topic.described, rows)
        assert len(made.entries) == 300
        assert sum(map(len, made.entries)) > 400_000
        assert log.commit_piece(0, [made])
        log.commit_piece(0, [made])
        read_back(home, log, 76_800)


@pytest.mark.parametrize(("count", "entries"), [(2600, 1), (150, 150)])
def test_a_transaction_of_very_many_chunks_is_one_commit(
    count: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of 150 would fit into the head, but each small chunk is an action of the same write."""
    monkeypatch.setattr(staged_chunk, "CHUNK_BYTES", 1)
    with tailrace.open("memory://") as home:
        log = CommitLog(home, "shop", partitions=8)
        log.begin(0)
        names = [f"t{n % 2}" for n in range(count)]  # neighbours of another schema are not joined
        rows = [
            make_rows(name, pa.record_batch({"id": pa.array([n])}), ["id"], mode=Mode.SYNC)
            for n, name in enumerate(names)
        ]
        assert log.take_in(rows, 1)
        read_back(home, log, count, entries)


def read_back(home: Home, log: CommitLog, count: int, entries: int = 1) -> None:
    """Everything is there once, by so many entries of a head that is small."""
    head = home.store.run(guard.read(heads.head_key(log.topic.id)))
    assert head is not None
    assert len(head["e"]) == entries
    found = [id for one in log.topic.fetch() for id in one.data.column("data").field("id").to_pylist()]
    assert sorted(found) == list(range(count))
    assert not home.scrub().damages


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(0)
def test_a_transaction_of_4_gib_reaches_the_sink(tmp_path: Path) -> None:
    """PostgreSQL keeps such texts in a few bytes, and its log spells them out."""
    with postgres(settings={"fsync": "off"}) as server, Place(server, "postgres") as source:
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        small, _ = peak_of(FOLLOWED, tmp_path, source.uri, 10)
        large, rows = peak_of(FOLLOWED, tmp_path, source.uri, 4096)
        assert 0 <= rows - (4096 + 10) <= 1  # the log may also say that the table was empty at first
        assert large < small + 2 * ALLOWED
        source.drop_slots(source.connection)
    found = ds.dataset([str(path) for path in tmp_path.glob("out/*/batch-*/*.parquet")])
    assert found.count_rows() == 4096 + 10


FOLLOWED = (
    MEASURED
    + """
import psycopg
import tailrace, tailrace.spark
from tailrace.pipeline.run.runner import Runner

folder, uri, mib = sys.argv[1:4]
made = (
    tailrace.pipeline("large", home=folder + "/home")
    .source("postgres", uri=uri)
    .save("file", path=folder + "/out")
    .definition()
)
spark = tailrace.spark.session("local[2]")
Runner(made, spark).run(once=True)
with psycopg.connect(uri) as source:
    source.execute("INSERT INTO t SELECT n, repeat('v', 1048576) FROM generate_series("
                   "(SELECT count(*) FROM t), (SELECT count(*) FROM t) + %s - 1) n", (int(mib),))
threading.Thread(target=watch, daemon=True).start()
runner = Runner(made, spark)
runner.run(once=True)
done.set()
with tailrace.open(folder + "/home") as home:
    print(peak[0], sum(end for _, end in home.topic("large-log").ends().values()))
"""
)
