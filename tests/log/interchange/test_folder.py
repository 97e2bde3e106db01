"""Export and import: what comes back, what is refused, and what a cut-off import leaves."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace import Home, Topic
from tailrace.errors import BadInput, Damaged, NotThere, UnknownPartition
from tailrace.log.format.chunk import encode
from tailrace.log.interchange import folder
from tailrace.log.interchange.folder import export_topic, import_topic
from tailrace.log.interchange.segment import Exported
from tailrace.log.read.fetched import Fetched
from tailrace.log.upkeep.retention import raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tests.cli.runs import Cli


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


def filled(home: Home, count: int = 30, partitions: int = 3) -> Topic:
    topic = home.topic("orders", partitions=partitions)
    with topic.producer() as out:
        for n in range(count):
            out.send(b"k%d" % n, None if n % 7 == 0 else b"v%d" % n, timestamp=1000 + n, mode=n % 3, op=n % 6)
        out.send(None, b"no key", partition=0)
    return topic


def everything(topic: Topic) -> list[tuple[object, ...]]:
    return sorted(record[1:] for record in topic.records())


def test_an_import_gives_back_what_was_exported_under_the_same_offsets(home: Home, tmp_path: Path) -> None:
    topic = filled(home)
    told: list[int] = []
    exported = export_topic(topic, tmp_path / "out", segment_bytes=200, told=told.append)
    assert sum(e.records for e in exported) == sum(told) == 31
    assert {e.partition: (e.first, e.next) for e in exported} == topic.ends()
    assert all(e.segments == len([*(tmp_path / "out" / str(e.partition)).iterdir()]) > 1 for e in exported)
    copy = home.topic("copy", partitions=3)
    imported = import_topic(copy, tmp_path / "out")
    assert sum(i.records for i in imported) == 31
    assert everything(copy) == everything(topic)


def test_an_import_repeated_stores_nothing_twice(home: Home, tmp_path: Path) -> None:
    topic = filled(home)
    export_topic(topic, tmp_path / "out")
    copy = home.topic("copy", partitions=3)
    import_topic(copy, tmp_path / "out", partition=1)
    imported = import_topic(copy, tmp_path / "out")
    assert {i.partition: (i.records > 0, i.present > 0) for i in imported} == {
        0: (True, False), 1: (False, True), 2: (True, False),
    }  # fmt: skip
    assert everything(copy) == everything(topic)


def test_an_import_that_was_cut_off_goes_on(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(home, 200, 1)
    export_topic(topic, tmp_path / "out", segment_bytes=500)
    copy, done = home.topic("copy", partitions=1), 0
    appended = folder._append

    def dies(*args: object) -> None:
        nonlocal done
        appended(*args)  # type: ignore[arg-type]
        done += 1
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(folder, "_append", dies)
    with pytest.raises(KeyboardInterrupt):
        import_topic(copy, tmp_path / "out")
    assert 0 < copy.ends()[0][1] < 201
    import_topic(copy, tmp_path / "out")
    assert everything(copy) == everything(topic)


def test_other_records_are_not_passed_over(home: Home, tmp_path: Path) -> None:
    export_topic(filled(home, 10, 1), tmp_path / "out")
    copy = home.topic("copy", partitions=1)
    copy.append([(b"other", b"record")])
    with pytest.raises(BadInput, match=r"'copy' has other records at offsets 0 to 0.*--renumber"):
        import_topic(copy, tmp_path / "out")
    assert copy.ends() == {0: (0, 1)}
    assert import_topic(copy, tmp_path / "out", renumber=True)[0].records == 11
    assert copy.ends() == {0: (0, 12)}


def test_records_that_retention_removed_are_not_compared(home: Home, tmp_path: Path) -> None:
    topic = filled(home, 10, 1)
    export_topic(topic, tmp_path / "out")
    home.store.run(raise_floor(topic.log, {0: 4}))
    assert import_topic(topic, tmp_path / "out")[0].present == 11


def test_what_retention_has_left_is_imported_under_its_own_offsets(home: Home, tmp_path: Path) -> None:
    topic = filled(home, 10, 1)
    home.store.run(raise_floor(topic.log, {0: 4}))
    assert export_topic(topic, tmp_path / "out") == [
        Exported(0, 4, 11, 7, 1, 7 * 29 + 6 * len(b"k4") + 5 * len(b"v4") + len(b"no key"))
    ]
    copy = home.topic("copy", partitions=1)
    done = import_topic(copy, tmp_path / "out")[0]
    assert (done.records, done.present, done.gaps) == (7, 0, 0)
    assert copy.ends() == topic.ends() == {0: (4, 11)}
    assert everything(copy) == everything(topic)
    assert import_topic(copy, tmp_path / "out")[0].present == 7
    assert home.scrub().clean
    more = home.topic("more", partitions=1)
    assert import_topic(more, tmp_path / "out", renumber=True)[0].records == 7
    assert more.ends() == {0: (0, 7)}


def compacted(home: Home, name: str = "states") -> Topic:
    """Of most keys only the newest record is left; between them are gaps."""
    topic = home.topic(name, partitions=2, compact=True)
    for n in range(40):
        topic.append([(b"k%d" % (n % 7 if n % 5 else n), b"%d" % n)])
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    home.upkeep()
    return topic


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_compacted_topic_is_imported_under_its_own_offsets(home: Home, tmp_path: Path, compression: str) -> None:
    topic = compacted(home)
    assert sum(1 for _ in topic.records()) < 30
    export_topic(topic, tmp_path / "out", segment_bytes=200)
    copy = home.topic("copy", partitions=2, compact=True, compression=compression)
    done = import_topic(copy, tmp_path / "out")
    assert sum(one.gaps for one in done) > 5
    assert everything(copy) == everything(topic)
    assert {q: end for q, (_, end) in copy.ends().items()} == {q: end for q, (_, end) in topic.ends().items()}
    assert home.scrub().clean
    again = import_topic(copy, tmp_path / "out")
    assert [one.records for one in again] == [0, 0]
    assert sum(one.present for one in again) == sum(1 for _ in topic.records())
    copy.append([(b"k1", b"newer")] * 3)
    assert [r.value for r in copy.records() if r.key == b"k1"][-1] == b"newer"
    for q, (floor, end) in copy.ends().items():
        for start in range(floor, end):
            expected = [r[2:] for r in everything_of(copy, q) if r.offset >= start]
            assert [r[2:] for r in copy.records(q, start)] == expected
    home.store.run(roll(copy.log, home.store.run(copy.log.head())))
    home.upkeep()
    assert import_topic(copy, tmp_path / "out")[0].records == 0, "what its own compaction has removed since is passed"


def everything_of(topic: Topic, partition: int) -> list[Any]:
    return list(topic.records(partition))


@pytest.mark.parametrize("floor", [0, 4])
def test_somebody_who_appends_meanwhile_is_noticed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floor: int
) -> None:
    topic = filled(home, 10, 1)
    home.store.run(raise_floor(topic.log, {0: floor}))
    export_topic(topic, tmp_path / "out")
    copy = home.topic("copy", partitions=1)
    monkeypatch.setattr(folder, "_known", lambda *_: len(copy.append([(b"a", b"b")])) - 1)
    with pytest.raises(BadInput, match="another producer appends to partition 0 of 'copy'"):
        import_topic(copy, tmp_path / "out")
    assert copy.ends() == {0: (0, 1)}


def test_an_export_has_what_was_there_when_it_began(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(home, 10, 2)
    before, fetch = topic.ends(), topic.fetch

    def fetch_while_others_append(*args: Any) -> Iterator[Fetched]:
        for turn, fetched in enumerate(fetch(*args)):
            assert turn < 100, "an export of a topic that grows must end"
            topic.append([(b"late%d" % n, b"x") for n in range(10)])
            yield fetched

    monkeypatch.setattr(topic, "fetch", fetch_while_others_append)
    assert {e.partition: (e.first, e.next) for e in export_topic(topic, tmp_path / "out")} == before


def test_an_export_ends_within_a_run(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging may have joined what was there when it began with what came later."""
    topic = filled(home, 10, 1)
    monkeypatch.setattr(topic, "ends", lambda: {0: (0, 4)})
    assert [(e.first, e.next, e.records) for e in export_topic(topic, tmp_path / "out")] == [(0, 4, 4)]


def test_segments_need_not_begin_where_chunks_do(home: Home, tmp_path: Path) -> None:
    topic = filled(home, 10, 1)
    export_topic(topic, tmp_path / "out", segment_bytes=100)
    assert import_topic(topic, tmp_path / "out")[0].present == 11


def test_headers_are_refused_or_dropped(home: Home, tmp_path: Path) -> None:
    topic = home.topic("orders", partitions=1)
    with topic.producer() as out:
        out.send(b"k", b"v", headers={"trace": b"1"})
    with pytest.raises(BadInput, match="have headers, which entries cannot hold"):
        export_topic(topic, tmp_path / "out")
    assert not any((tmp_path / "out").rglob("*.log"))
    assert export_topic(topic, tmp_path / "out", drop_headers=True)[0].records == 1


def test_a_torn_end_is_told_and_damage_refused(home: Home, tmp_path: Path) -> None:
    export_topic(filled(home, 10, 1), tmp_path / "out")
    path = tmp_path / "out" / "0" / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    copy = home.topic("copy", partitions=1)
    imported = import_topic(copy, tmp_path / "out")[0]
    assert imported.records == 10
    assert "torn at" in imported.torn[0]
    path.write_bytes(data[:8] + b"\xff" + data[9:])
    with pytest.raises(Damaged, match="the bytes at 0"):
        import_topic(home.topic("another", partitions=1), tmp_path / "out")


def test_what_cannot_be_imported_is_refused_before_anything_is_written(home: Home, tmp_path: Path) -> None:
    export_topic(filled(home), tmp_path / "out")
    copy = home.topic("copy", partitions=2)
    with pytest.raises(UnknownPartition, match="'copy' has no partition 2"):
        import_topic(copy, tmp_path / "out")
    with pytest.raises(NotThere, match="has no partitions; an export is a folder like"):
        import_topic(copy, tmp_path / "out" / "0")
    with pytest.raises(NotThere, match="has no partition 7"):
        import_topic(copy, tmp_path / "out", partition=7)
    with pytest.raises(UnknownPartition):
        export_topic(copy, tmp_path / "other", partition=7)
    with pytest.raises(OSError, match=r"cannot import .*nowhere: No such file"):
        import_topic(copy, tmp_path / "nowhere")
    (tmp_path / "out" / "0" / "notes.log").touch()
    with pytest.raises(BadInput, match=r"notes\.log is not named like a segment"):
        import_topic(copy, tmp_path / "out", partition=0)
    assert copy.ends() == {0: (0, 0), 1: (0, 0)}


def test_an_empty_topic_and_one_partition(home: Home, tmp_path: Path) -> None:
    empty = home.topic("empty", partitions=2)
    assert [e.records for e in export_topic(empty, tmp_path / "empty")] == [0, 0]
    assert [i.records for i in import_topic(empty, tmp_path / "empty")] == [0, 0]
    topic = filled(home)
    (only,) = export_topic(topic, tmp_path / "one", partition=2)
    assert (only.partition, only.records) == (2, topic.ends()[2][1])
    assert [p.name for p in (tmp_path / "one").iterdir()] == ["2"]


def test_a_partition_larger_than_a_batch(home: Home, tmp_path: Path) -> None:
    topic = home.topic("big", partitions=1)
    rows = 100_000
    with topic.producer() as out:
        out.send_batch(pa.table({"key": [b"k%d" % (n % 10) for n in range(rows)], "value": [b"v" * 100] * rows}))
    export_topic(topic, tmp_path / "out")
    copy = home.topic("copy", partitions=1)
    assert import_topic(copy, tmp_path / "out")[0].records == rows
    assert pa.Table.from_batches(copy.read()).equals(pa.Table.from_batches(topic.read()))


def typed(home: Home, topic: Topic, **columns: pa.Array[Any]) -> None:
    """Append rows of a pipeline: typed columns in place of a value."""
    data = pa.StructArray.from_arrays([*columns.values()], names=[*columns])
    rows = len(data)
    stamps = pa.array([1000] * rows, pa.timestamp("ms", "UTC"))
    batch = pa.record_batch(
        [stamps, pa.array([0] * rows, pa.uint8()), pa.array([b"k%d" % n for n in range(rows)]), data],
        names=["timestamp", "attributes", "key", "data"],
    )
    placed = home.store.run(place(topic.log, encode({0: [batch]})))
    home.store.run(commit([placed]))


def test_the_rows_of_a_pipeline_leave_as_json(home: Home, tmp_path: Path) -> None:
    topic = home.topic("orders", partitions=1)
    typed(home, topic, id=pa.array([1, 2]), paid=pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)))
    typed(home, topic, raw=pa.array([b"\xff"]))
    export_topic(topic, tmp_path / "out")
    copy = home.topic("copy", partitions=1)
    import_topic(copy, tmp_path / "out")
    assert [r.value for r in copy.records()] == [b'{"id":1,"paid":"1.50"}', b'{"id":2,"paid":null}', b'{"raw":"/w=="}']
    assert import_topic(topic, tmp_path / "out")[0].present == 3
    cli = Cli(tmp_path / "home")
    assert [r["value"] for r in cli("topic", "read", "orders", "--json").json] == [
        '{"id":1,"paid":"1.50"}', '{"id":2,"paid":null}', '{"raw":"/w=="}',
    ]  # fmt: skip
    assert cli("topic", "tail", "orders", "-n", 1).out.endswith('\tk0\t{"raw":"/w=="}\n')
    cli("topic", "read", "orders", "--format", "parquet", "-o", tmp_path / "o.parquet")
    assert pq.read_table(tmp_path / "o.parquet")["value"].to_pylist()[2] == b'{"raw":"/w=="}'
