"""Merging on real stores: what is read is the same, and there is less of it to read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import Lost
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import TYPED
from tailrace.log.record import Record
from tailrace.log.topic import Topic
from tailrace.log.upkeep import repack
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge, merge_all
from tailrace.log.write.lookup import look
from tailrace.storage.calls import PutObject, Write
from tests.log.driving import Driven, homes_with_small_pages, land, pages

home = homes_with_small_pages(300)


def filled(home: Home, appends: int = 40, **settings: Any) -> Topic:
    topic = home.topic("t", partitions=3, **settings)
    for n in range(appends):
        topic.append([(b"k%d" % (n % 5), b"v%d" % n), (b"x%d" % n, b"w" * (n % 7))])
    return topic


def everything(topic: Topic) -> list[Record]:
    return sorted(topic.records())


def run(topic: Topic, steps: Any) -> Any:
    return topic.store.run(steps)


def test_what_is_read_is_the_same_and_few_objects_are_left(home: Home) -> None:
    topic = filled(home)
    before, count = everything(topic), len(pages(topic))
    assert run(topic, merge_all(topic.log, size=1 << 20)) == count - 1
    assert everything(topic) == before
    assert [len(page.entries) for page in pages(topic)] == [1]
    run(topic, clean(topic.log))
    assert run(topic, clean(topic.log)).chunks >= count
    assert everything(topic) == before
    objects = list(home.store.objects.list(f"topics/{topic.id}/"))
    assert len(objects) <= 1 + len(topic.store.run(topic.log.head()).own.entries)


def test_merged_records_lie_in_large_batches(home: Home) -> None:
    topic = filled(home)
    run(topic, merge_all(topic.log, size=1 << 20))
    batches = [batch.num_rows for batch in topic.read(1)]
    assert max(batches) > 5


def test_large_runs_are_taken_over_as_they_are(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "LARGE_BYTES", 1)
    monkeypatch.setattr(repack.RunToPack, "batches", lambda piece: pytest.fail("it was decoded"))
    topic = filled(home)
    before, count = everything(topic), len(pages(topic))
    assert run(topic, merge_all(topic.log, size=1 << 20)) == count - 1
    monkeypatch.undo()
    assert everything(topic) == before


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_topic_is_merged_in_its_compression(home: Home, compression: Any) -> None:
    topic = filled(home)
    before = everything(topic)
    run(topic, merge_all(topic.log, compression, size=1 << 20))
    assert everything(topic) == before


def test_records_with_and_without_headers_are_merged(home: Home) -> None:
    topic = home.topic("t", partitions=1)
    for n in range(20):
        with topic.producer() as out:
            out.send(b"k", b"%d" % n, headers={"n": b"%d" % n} if n % 3 == 0 else None)
    before = everything(topic)
    run(topic, merge_all(topic.log, size=1 << 20))
    assert everything(topic) == before
    assert len(pages(topic)) == 1


def test_typed_rows_are_merged_where_their_schemas_are_alike(home: Home) -> None:
    from tailrace.adaptors.rows.rows import make_rows
    from tailrace.log.write.append import commit
    from tailrace.log.write.staged_chunk import place_staged, stage_chunks

    topic = home.topic("t", partitions=1)
    for n in range(24):
        columns = {"id": [n]} if n % 8 else {"id": [n], "other": ["x"]}
        rows = make_rows(f"shop.{n // 12}", pa.RecordBatch.from_pydict(columns), ["id"])
        placed = topic.store.run(
            place_staged(topic.log, [stage_chunks(topic.store, topic.log, topic.described, [rows])])
        )
        assert placed is not None
        run(topic, commit([placed]))
    told = [(f.offset + n, row, f.data.schema.metadata) for f in topic.fetch() for n, row in enumerate(_rows(f.data))]
    run(topic, merge_all(topic.log, size=1 << 20))
    assert pages(topic)[0].entries[0].kind == TYPED
    now = list(topic.fetch())
    assert [(f.offset + n, row, f.data.schema.metadata) for f in now for n, row in enumerate(_rows(f.data))] == told
    assert len(now) < 12


def _rows(batch: pa.RecordBatch) -> list[Any]:
    return batch.to_pylist()


def test_nothing_is_merged_out_of_nothing(home: Home) -> None:
    topic = filled(home, 1)
    assert run(topic, merge(topic.log, [])) is False
    assert run(topic, merge_all(topic.log)) == 0


def test_a_single_page_of_one_chunk_is_left(home: Home) -> None:
    topic = filled(home)
    run(topic, merge_all(topic.log, size=1 << 20))
    one = pages(topic)
    assert run(topic, merge(topic.log, one)) is False
    assert [page.revision for page in pages(topic)] == [page.revision for page in one]


def test_ids_are_found_until_they_are_behind_the_fence(home: Home) -> None:
    topic = filled(home)
    old = pages(topic)
    wanted, number = old[3].entries[0].id, old[3].first
    at = old[3].offsets_of(wanted)
    run(topic, merge_all(topic.log, size=1 << 20))
    found = run(topic, look(topic.log, number))
    assert found.offsets_of(wanted) == at
    assert not found.forgot
    for _ in range(2):
        run(topic, clean(topic.log))
    for n in range(5):
        topic.append([(b"more", b"%d" % n)])
    assert run(topic, merge(topic.log, pages(topic)))
    found = run(topic, look(topic.log, number))
    assert found.offsets_of(wanted) is None
    assert found.forgot


def test_a_merge_without_an_answer_is_looked_for(home: Home) -> None:
    topic = filled(home)
    steps = Driven(home.store, merge(topic.log, pages(topic)[:4])).until(Write)
    sent = steps.lose()
    assert steps.run() is False
    steps = Driven(home.store, merge(topic.log, pages(topic)[:4])).until(Write)
    land(home.store, steps.call)  # type: ignore[arg-type]
    steps.lose()
    assert steps.run() is True
    before = everything(topic)
    land(home.store, sent)  # the first one, late: the page is no longer as it was read
    assert everything(topic) == before


def test_a_put_without_an_answer_leaves_everything_as_it_is(home: Home) -> None:
    topic = filled(home)
    before = everything(topic)
    steps = Driven(home.store, merge(topic.log, pages(topic)[:4])).until(PutObject)
    steps.lose()
    assert steps.run() is False
    assert everything(topic) == before


def harm(home: Home, broken: heads.ChunkEntry, how: str) -> None:
    objects: Any = home.store.objects
    name = heads.object_name(home.topic("t").id, broken.gen, broken.id)
    if how == "gone":
        del objects.items[name]
    else:
        objects.items[name] = bytes(len(objects.items[name]))


@pytest.mark.parametrize("how", ["zeros", "gone"])
def test_a_damaged_chunk_is_merged_around_and_never_again(home: Home, how: str) -> None:
    if home.store.table.joins_inline:
        pytest.skip("of objects")
    topic = filled(home)
    topic.quarantine([Lost(q, 0, 1000) for q in range(3)], "any loss, for this test")
    whole = everything(topic)
    broken = pages(topic)[2].entries[0]
    harm(home, broken, how)
    left = everything(topic)
    assert 0 < len(left) < len(whole)
    assert run(topic, merge_all(topic.log, size=1 << 20)) > 0
    (page,) = pages(topic)
    assert [entry.id == broken.id for entry in page.entries] == [False, True, False]
    assert everything(topic) == left
    count = len(list(home.store.objects.list("topics/")))
    assert run(topic, merge_all(topic.log, size=1 << 20)) == 0
    assert run(topic, merge(topic.log, pages(topic), size=1 << 20)) is False
    assert len(list(home.store.objects.list("topics/"))) == count, "nothing is written for nothing"
    topic.lift()
    with pytest.raises(tailrace.errors.Damaged, match=broken.id):
        everything(topic)
