"""Compaction: the newest record of each key stays, at its offset; whoever reads in the middle ends with the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.adaptors.rows.rows import make_rows, meant_for, messages_of
from tailrace.coordination.rules import without
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.format.chunk import MANIFEST, OFFSETS
from tailrace.log.format.head import ChunkEntry
from tailrace.log.read.reader import Reader
from tailrace.log.record import Op
from tailrace.log.settings import TopicSettings
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.compaction import compaction
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings, upkeep_key
from tailrace.log.upkeep.merge import merge, merge_all
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import gather
from tailrace.storage.calls import Get, GetObject, Write
from tailrace.storage.tables import Delete
from tests.log.driving import Driven, homes_with_small_pages, pages, simulated_home

home = homes_with_small_pages(100)


def filled(home: Home, text: str, partitions: int = 1, **settings: Any) -> Topic:
    """A topic with a record for each letter, its key; one in capitals is a tombstone.  Then the page is closed."""
    topic = home.topic("t", partitions=partitions, **settings)
    more(topic, text)
    return topic


def more(topic: Topic, text: str) -> None:
    n = sum(end for _, end in topic.ends().values())
    for at, letter in enumerate(text, n):
        with topic.producer() as out:
            value = b"%d" % at if letter.islower() else None
            out.send(letter.lower().encode(), value, timestamp=1000 + at)
    close(topic)


def close(topic: Topic) -> None:
    from tailrace.log.write.attempt import roll

    topic.store.run(roll(topic.log, topic.store.run(topic.log.head())))


def shown(topic: Topic) -> str:
    """Offsets and keys, of a topic of one partition."""
    found = list(topic.records())
    assert [r.offset for r in topic.records(0)] == [r.offset for r in found]
    return " ".join(f"{r.offset}{(r.key or b'-').decode()}" for r in found)


def run(topic: Topic, how: CompactionSettings | None = None) -> int:
    return topic.store.run(compact(topic.log, how or CompactionSettings())).records


def test_the_newest_record_of_each_key_stays_at_its_offset(home: Home) -> None:
    topic = filled(home, "aabbaabbcacbaacba")
    assert run(topic) == 14
    assert shown(topic) == "14c 15b 16a"
    assert topic.ends() == {0: (0, 17)}
    more(topic, "abz")
    assert shown(topic) == "14c 15b 16a 17a 18b 19z"
    run(topic)
    assert shown(topic) == "14c 17a 18b 19z"


def test_only_closed_pages_are_compacted(home: Home) -> None:
    topic = filled(home, "aab")
    with topic.producer() as out:
        out.send(b"b", b"new")
    run(topic)
    assert shown(topic) == "1a 2b 3b"


def test_records_without_a_key_stay(home: Home) -> None:
    topic = filled(home, "aa")
    topic.append([(None, b"x"), (None, b"x"), (b"a", b"y")])
    close(topic)
    run(topic)
    assert shown(topic) == "2- 3- 4a"


def test_tombstones_stay_for_a_while(home: Home) -> None:
    topic = filled(home, "abAcB")
    run(topic, CompactionSettings(before=1000))
    assert shown(topic) == "2a 3c 4b"
    run(topic, CompactionSettings(before=1003, delay=0))
    assert shown(topic) == "3c 4b"
    assert [r.value for r in topic.records()][1] is None
    assert run(topic, CompactionSettings(before=1004)) == 0
    assert run(topic, CompactionSettings(before=1005)) == 1
    assert shown(topic) == "3c"


def test_tombstones_long_over_begin_a_round_of_their_own(home: Home) -> None:
    topic = filled(home, "abcdefghA")
    run(topic, CompactionSettings(before=0, delay=10))
    item = home.store.table.get(upkeep_key(topic.id))
    assert item is not None
    assert item["tombstones"] == 1008
    assert run(topic, CompactionSettings(before=1012, delay=10)) == 0
    assert run(topic, CompactionSettings(before=1019, delay=10)) == 1


def test_a_delete_is_a_tombstone_too(home: Home) -> None:
    topic = filled(home, "ab")
    with topic.producer() as out:
        out.send(b"a", b"was here", timestamp=1002, op=2)
    close(topic)
    run(topic, CompactionSettings(before=1002))
    assert shown(topic) == "1b 2a"
    run(topic, CompactionSettings(before=9999))
    assert shown(topic) == "1b"


def test_everything_may_be_gone(home: Home) -> None:
    topic = filled(home, "aA")
    run(topic, CompactionSettings(before=9999))
    assert shown(topic) == ""
    assert topic.ends() == {0: (0, 2)}
    more(topic, "b")
    assert shown(topic) == "2b"
    assert topic.offset_at(0, _time(1000)) == 2
    topic.store.run(merge_all(topic.log, size=1 << 20))
    assert shown(topic) == "2b"


def _time(ms: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC)


def test_a_time_is_found_among_gaps(home: Home) -> None:
    topic = filled(home, "aabbaabbcacbaacba")
    run(topic)
    assert [topic.offset_at(0, _time(ms)) for ms in (0, 1014, 1015, 1016, 1017)] == [14, 14, 15, 16, 17]
    topic.store.run(merge_all(topic.log, size=1 << 20))
    assert topic.offset_at(0, _time(1015)) == 15


def test_reading_from_and_up_to_offsets_that_are_gone(home: Home) -> None:
    topic = filled(home, "abcabcabc")
    more(topic, "abd")
    run(topic)
    assert shown(topic) == "8c 9a 10b 11d"
    assert [r.offset for r in topic.records(0, 9)] == [9, 10, 11]
    assert [r.offset for r in topic.records(0, 3)] == [8, 9, 10, 11]
    reader = Reader(topic.log, {0: 0}, until={0: 10})
    found = []
    while some := topic.store.run(reader.poll()):
        found += [n for f in some for n in f.offsets.to_pylist()]
    assert found == [8, 9]
    assert reader.positions == {0: 10}


def test_what_somebody_still_needs_is_not_touched(home: Home) -> None:
    topic = filled(home, "aabb")
    assert run(topic, CompactionSettings(held={0: 0})) == 0
    assert run(topic, CompactionSettings(held={})) == 0
    assert run(topic, CompactionSettings(held={0: 4})) == 2


def test_compaction_past_a_pending_message_is_missed(home: Home) -> None:
    topic = filled(home, "aabb")
    with without("upkeep.held"):
        assert run(topic, CompactionSettings(held={0: 0})) == 2


def test_merged_and_compacted_chunks_are_merged(home: Home) -> None:
    topic = filled(home, "aabbcc")
    run(topic)
    more(topic, "defgh")
    with topic.producer() as out:
        out.send(b"i", b"x", headers={"h": b"1"})
    close(topic)
    before = list(topic.records())
    assert topic.store.run(merge(topic.log, pages(topic)))
    (page,) = pages(topic)
    assert len(page.entries) == 1
    assert page.entries[0].kind & OFFSETS
    assert list(topic.records()) == before


def test_a_round_takes_in_no_more_keys_than_fit_into_memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_KEY_BYTES_PER_ROUND", 1)
    topic = filled(home, "aabbaabbcacbaacba")
    for _ in range(30):
        run(topic)
    item = home.store.table.get(upkeep_key(topic.id))
    assert item is not None
    assert item["compacted"] > 0
    assert {r.key: r.offset for r in topic.records()} == {b"c": 14, b"b": 15, b"a": 16}


def test_little_that_is_new_is_not_worth_it(home: Home) -> None:
    topic = filled(home, "abcdefghijklmnop")
    run(topic)
    more(topic, "ab")
    assert run(topic) == 0
    more(topic, "cdefghijkl")
    assert run(topic) == 12


def test_a_page_that_changes_meanwhile_ends_the_round(home: Home) -> None:
    topic = filled(home, "aabbccA")
    steps = Driven(home.store, compact(topic.log, CompactionSettings(before=9999))).until(Write)
    home.store.run(merge_all(topic.log, size=4000))
    assert steps.run() == (0, ())
    assert {r.key for r in topic.records()} == {b"a", b"b", b"c"}
    assert run(topic, CompactionSettings(before=9999)) == 5
    assert {r.key for r in topic.records()} == {b"b", b"c"}


def test_pages_that_another_upkeep_replaced_meanwhile_are_no_damage(home: Home) -> None:
    topic = filled(home, "aabbaabb")
    late = Driven(topic.store, compact(topic.log, CompactionSettings()))
    while not isinstance(late.call, GetObject) and not (isinstance(late.call, Get) and "Chunk" in late.call.key.p):
        late.step()
    for _ in range(2):  # the first marks what is replaced, the second removes it
        topic.store.run(tend(topic.log, TopicSettings(compact=True), UpkeepResult("t"), 10**6))
    assert late.run() == (0, ())
    assert shown(topic) == "5a 7b"


def test_a_tombstone_on_a_page_replaced_meanwhile_outlives_what_it_deletes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that has not seen it ends: else the record would stay, and the tombstone, being old, would go."""
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 1000)
    topic, how = filled(home, "a"), CompactionSettings(before=10**6)
    more(topic, "Ac")
    more(topic, "d")
    late = Driven(topic.store, compact(topic.log, how))
    for _ in range(2):  # the first page's chunk is read, the second's not yet
        late.step()
        while not isinstance(late.call, GetObject) and not (isinstance(late.call, Get) and "Chunk" in late.call.key.p):
            late.step()
    assert topic.store.run(merge(topic.log, pages(topic)[1:2]))
    for _ in range(2):
        topic.store.run(clean(topic.log))
    assert late.run() == (0, ())
    run(topic, how)
    assert shown(topic) == "2c 3d"


def test_a_chunk_that_is_gone_is_told_and_the_rest_of_the_upkeep_goes_on(home: Home) -> None:
    topic = filled(home, "aabb")
    lost(topic, pages(topic)[0].entries[0])
    topic.store.run(tend(topic.log, TopicSettings(compact=True), done := UpkeepResult("t"), 10**6))
    assert done.error is not None
    assert "cannot be read, and is not compacted: offset 0 of partition 0 of 't'" in done.error


def lost(topic: Topic, entry: ChunkEntry) -> None:
    """The bytes of a chunk go, as if by hand."""
    if entry.inline:
        topic.store.table.write(Delete(heads.chunk_key(topic.id, entry.gen, entry.id)))
    else:
        topic.store.objects.delete([heads.object_name(topic.id, entry.gen, entry.id)])


def test_chunks_that_a_manifest_lists_are_compacted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a very large Spark commit makes them; merging leaves them alone."""
    monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 100)
    topic = filled(home, "ab")
    parts = []
    for keys in ("ab", "cb", "ac"):
        buffer = Buffer(1, 1 << 20)
        for key in keys:
            buffer.add(key.encode(), b"v", 2000)
        parts.append(buffer.encode("none"))
    topic.store.run(commit([topic.store.run(gather(topic.log, parts))]))
    close(topic)
    assert [e.kind for page in pages(topic) for e in page.entries if e.kind] == [MANIFEST]
    topic.store.run(merge_all(topic.log))
    assert [e.kind for page in pages(topic) for e in page.entries if e.kind] == [MANIFEST]
    assert run(topic) == 5
    assert shown(topic) == "5b 6a 7c"


def put(
    topic: Topic, namespace: str, id: int, op: Op = Op.UPDATE, *, unset: bool = False, only: str | None = None
) -> None:
    """A row of a pipeline; `unset`: of which the source did not send all; `only`: for one writer alone."""
    bitmap = pa.array([b"\x02" if unset else None], pa.binary())
    columns = pa.RecordBatch.from_pydict({"id": [id], "x": [topic.ends()[0][1]]})
    rows = make_rows(namespace, columns, ["id"], op=op, unset=bitmap)
    _append(topic, meant_for(rows, only) if only else rows)


def told(topic: Topic) -> str:
    """Offsets, namespaces and ids of a pipeline's rows."""
    found = [(n, m) for f in topic.fetch() for n, m in zip(f.offsets.to_pylist(), messages_of(f.data), strict=True)]
    return " ".join(f"{n}{m.namespace[-1]}{m.id}" for n, m in found)


@pytest.mark.parametrize(
    ("rule", "settings"), [("compact.unset", {"unset": True}), ("compact.only", {"only": "w"})], ids=["unset", "only"]
)
def test_a_row_that_does_not_stand_for_its_document_leaves_the_earlier_ones(
    home: Home, rule: str, settings: dict[str, Any]
) -> None:
    topic = home.topic("t", partitions=1)

    def more() -> None:
        put(topic, "shop.a", 0)
        put(topic, "shop.a", 0, **settings)
        close(topic)

    more()
    assert run(topic) == 0
    more()
    assert run(topic) == 2, "a whole row takes the place of all before it"
    assert told(topic) == "2a0 3a0"
    with without(rule):
        more()
        run(topic)
    assert told(topic) == "5a0", (
        "the whole row is lost: what is left of the document is a part, or for one writer alone"
    )


def test_rows_of_a_pipeline(home: Home) -> None:
    topic = home.topic("t", partitions=1)
    for n in range(4):
        put(topic, "shop.a", n % 2)
    put(topic, "shop.b", 0)
    put(topic, "shop.a", 0, unset=True)
    put(topic, "shop.a", 1, only="w")
    put(topic, "shop.b", 1)
    put(topic, "shop.b", 1, Op.DELETE)
    close(topic)

    run(topic, CompactionSettings(before=0))
    assert told(topic) == "2a0 3a1 4b0 5a0 6a1 8b1"
    assert next(topic.fetch()).data.schema.metadata[b"namespace"] == b"shop.a"
    topic.store.run(merge_all(topic.log, size=1 << 20))
    assert told(topic) == "2a0 3a1 4b0 5a0 6a1 8b1"
    topic.store.run(tend(topic.log, TopicSettings(compact=True), UpkeepResult("t"), 10**12))
    put(topic, "shop.a", 0)
    put(topic, "shop.a", 1)
    put(topic, "shop.b", 0)
    put(topic, "shop.a", 2)
    close(topic)
    run(topic, CompactionSettings("namespace", 10**13))
    assert told(topic) == "11b0 12a2"


def _append(topic: Topic, rows: pa.RecordBatch) -> None:
    from tailrace.log.write.staged_chunk import place_staged, stage_chunks

    placed = topic.store.run(place_staged(topic.log, [stage_chunks(topic.store, topic.log, topic.described, [rows])]))
    assert placed is not None
    topic.store.run(commit([placed]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aabbcdABC"), st.booleans()), max_size=60), st.integers(0, 80))
def test_the_last_state_of_each_key_is_what_it_was(given: list[tuple[str, bool]], before: int) -> None:
    home, _ = simulated_home("objects")
    topic = home.topic("t", partitions=2, compact=True)
    want: dict[bytes, bytes | None] = {}
    for n, (letter, tends) in enumerate(given):
        key, value = letter.lower().encode(), b"%d" % n if letter.islower() else None
        with topic.producer() as out:
            out.send(key, value, timestamp=n)
        want[key] = value
        if n % 3 == 0:
            close(topic)
        if tends:
            topic.store.run(tend(topic.log, TopicSettings(compact=True, tombstone_ms=5), UpkeepResult("t"), before))
        got = {r.key: r.value for r in topic.records()}
        assert {k: v for k, v in got.items() if v is not None} == {k: v for k, v in want.items() if v is not None}


def test_tombstones_stay_while_what_they_delete_may_be_in_another_partition(home: Home) -> None:
    topic = filled(home, "abcdefgh", partitions=2)
    topic.grow(5)
    more(topic, "ABCDEFGHa")
    run(topic, CompactionSettings(before=9999))
    found = list(topic.records())
    last = {r.key: r.value for r in sorted(found, key=lambda r: r.timestamp)}
    assert {k for k, v in last.items() if v is not None} == {b"a"}
    topic = home.topic("t")
    with without("compact.grown"):
        more(topic, "ABCDEFGH" * 3)
        run(topic, CompactionSettings(before=99999))
    last = {r.key: r.value for r in sorted(topic.records(), key=lambda r: r.timestamp)}
    assert {k for k, v in last.items() if v is not None} - {b"a"}, "nothing moved: this shows nothing"
