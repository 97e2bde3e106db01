"""Chunks that cannot be read stay as they are: compaction goes on around them, and nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordination.rules import without
from tailrace.errors import Lost
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry
from tailrace.log.settings import TopicSettings
from tailrace.log.topic import Topic
from tailrace.log.upkeep.compaction import rewrite, unreadable
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings, upkeep_key
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import gather
from tailrace.storage.calls import PutObject
from tailrace.storage.tables import Absent, Delete, Put
from tests.log.driving import Driven, homes_with_small_pages, pages, simulated_home
from tests.log.upkeep.compaction.test_compaction import close, filled, more, run, shown

home = homes_with_small_pages(1000)
LATE = CompactionSettings(before=10**6)
"""Every tombstone may go."""


def entry_of(topic: Topic, key: str) -> ChunkEntry:
    """The chunk with the first record of a key, which is not compacted."""
    found = next(r.offset for r in topic.records() if r.key == key.encode())
    return [entry for page in pages(topic) for entry in page.entries][found]


def hidden(topic: Topic, entry: ChunkEntry, how: str = "gone") -> Callable[[], None]:
    """A chunk is lost, or harmed; gives how it is restored."""
    store, name = topic.store, heads.object_name(topic.id, entry.gen, entry.id)
    if entry.inline:
        key = heads.chunk_key(topic.id, entry.gen, entry.id)
        item = store.table.get(key)
        assert item is not None
        whole = {field: value for field, value in item.items() if field not in ("p", "i")}
        store.table.write(Delete(key) if how == "gone" else Put(key, whole | {"d": bytes(len(item["d"]))}, ()))
        return lambda: store.table.write(Put(key, whole, () if store.table.get(key) else (Absent(),)))
    items: dict[str, bytes] = store.objects.items  # type: ignore[attr-defined]
    data = items.pop(name)
    if how == "harmed":
        items[name] = bytes(len(data))
    return lambda: items.update({name: data})


def tended(topic: Topic, wall: int = 10**14) -> UpkeepResult:
    topic.store.run(tend(topic.log, TopicSettings(compact=True, tombstone_ms=0), done := UpkeepResult("t"), wall))
    return done


def left(topic: Topic) -> dict[str, int]:
    item = topic.store.table.get(upkeep_key(topic.id))
    assert item is not None
    return dict(item["left"])


@pytest.mark.parametrize("how", ["gone", "harmed"])
def test_its_neighbours_are_compacted_and_restored_it_is_back(home: Home, how: str) -> None:
    topic = filled(home, "abcxabcabc")
    entry = entry_of(topic, "x")
    restore = hidden(topic, entry, how)
    assert home.scrub().damages[0].lost == ((0, 3, 4),)
    topic.quarantine(home.scrub().damages[0].lost, "lost")
    done = tended(topic)
    assert (done.compacted_records, done.spared_chunks, done.error) == (6, 1, None)
    assert shown(topic) == "7a 8b 9c"
    assert entry in [e for page in pages(topic) for e in page.entries], "as it was"
    restore()
    assert shown(topic) == "3x 7a 8b 9c"
    assert tended(topic).spared_chunks == 0


def test_nothing_goes_because_of_what_may_be_in_it(home: Home) -> None:
    topic = filled(home, "abab")
    restore = hidden(topic, [e for page in pages(topic) for e in page.entries][3])
    assert run(topic) == 1
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")
    assert shown(topic) == "1b 2a"
    restore()
    assert shown(topic) == "1b 2a 3b"


@pytest.mark.parametrize("how", ["gone", "harmed"])
def test_damage_that_nobody_has_decided_on_is_told_and_the_rest_goes_on(home: Home, how: str) -> None:
    topic = filled(home, "abcxabc")
    hidden(topic, entry_of(topic, "x"), how)
    for removed in (3, 0):  # each upkeep tells
        done = tended(topic)
        assert (done.compacted_records, done.spared_chunks) == (removed, 1)
        assert "cannot be read, and is not compacted: offset 3 of partition 0 of 't'; restore it" in (done.error or "")


def test_what_was_decided_must_cover_it(home: Home) -> None:
    topic = filled(home, "abcxabcy")
    for key in "xy":
        hidden(topic, entry_of(topic, key) if key == "x" else [e for p in pages(topic) for e in p.entries][7])
    topic.quarantine([home.scrub().damages[0].lost[0]], "the first")
    done = tended(topic)
    assert done.spared_chunks == 2
    assert "offset 7 of partition 0" in (done.error or "")


def test_a_tombstone_behind_it_stays(home: Home) -> None:
    topic = filled(home, "abxAxB")
    restore = hidden(topic, entry_of(topic, "a"))
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")
    run(topic, LATE)
    assert shown(topic) == "3a 4x 5b"
    mark = topic.store.table.get(upkeep_key(topic.id))
    assert mark is not None
    assert mark["tombstones"] is None, "nothing that each upkeep should try again"
    restore()
    assert {r.key for r in topic.records() if r.offset > 0} == {b"a", b"x", b"b"}


def test_without_this_what_was_deleted_would_be_back(home: Home) -> None:
    topic = filled(home, "abxAxB")
    restore = hidden(topic, entry_of(topic, "a"))
    with without("compact.stays"):
        run(topic, LATE)
    restore()
    assert shown(topic) == "0a 4x"


def test_a_tombstone_before_it_goes(home: Home) -> None:
    topic = filled(home, "aAbxB")
    hidden(topic, entry_of(topic, "x"))
    run(topic, LATE)
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")
    assert shown(topic) == "4b"


def test_tombstones_of_other_partitions_go(home: Home) -> None:
    topic = home.topic("t", partitions=2)
    for q, key, value in (0, b"a", b"1"), (1, b"b", b"1"), (0, b"a", None), (1, b"b", None):
        with topic.producer() as out:
            out.send(key, value, partition=q, timestamp=1000)
    close(topic)
    hidden(topic, pages(topic)[0].entries[0])
    run(topic, LATE)
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")
    assert [(r.partition, r.offset) for r in topic.records()] == [(0, 1)]


@pytest.mark.parametrize("rule", [None, "compact.left"])
def test_a_tombstone_stays_until_what_was_restored_has_been_gone_through(home: Home, rule: str | None) -> None:
    topic = filled(home, "abA")
    restore = hidden(topic, entry_of(topic, "a"))
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")
    run(topic, LATE)
    assert left(topic) == {"0": 0}
    restore()
    with without(*[rule] if rule else []):
        more(topic, "cde")
        run(topic, LATE)
        assert shown(topic) == ("0a 1b 2a 3c 4d 5e" if rule is None else "0a 1b 3c 4d 5e")
        if rule is None:
            assert left(topic) == {}
            run(topic, LATE)
            assert shown(topic) == "1b 3c 4d 5e"


def test_a_chunk_restored_in_the_middle_of_a_round_is_not_taken_for_superseded(home: Home) -> None:
    topic = filled(home, "abcxabc")
    restore = hidden(topic, entry_of(topic, "x"))
    late = Driven(topic.store, compact(topic.log, LATE)).until(PutObject)
    restore()
    late.run()
    assert shown(topic) == "3x 4a 5b 6c"


def test_restored_before_the_first_page_is_written_anew(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is newest was found without it, so by that it would go."""
    topic = filled(home, "abcxabc")
    restore, together = hidden(topic, entry_of(topic, "x")), rewrite._pages_for_one_object

    def restored(*given: object) -> object:
        restore()
        return together(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "_pages_for_one_object", restored)
    assert run(topic, LATE) == 3
    assert shown(topic) == "3x 4a 5b 6c"


def test_one_that_was_replaced_meanwhile_is_no_damage(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, real = filled(home, "abcabc"), rewrite._replacement

    def late(*given: object) -> object:
        monkeypatch.setattr(rewrite, "_replacement", real)
        for _ in range(2):  # the first marks what is replaced, the second removes it
            tended(topic)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "_replacement", late)
    assert topic.store.run(compact(topic.log, CompactionSettings())) == (0, ())
    assert shown(topic) == "3a 4b 5c"


@pytest.mark.parametrize("many", [False, True], ids=["chunk", "list"])
def test_restored_and_merged_in_the_middle_of_a_round(home: Home, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds a tombstone, which nobody has taken in: what that deletes is still there, so it must stay."""
    topic, together = filled(home, "a"), rewrite._pages_for_one_object
    if many:
        monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 100)
        listing = listed(topic, "A", "x")
    else:
        more(topic, "Ax")
        listing = pages(topic)[1].entries[0]
    more(topic, "c")
    restore = hidden(topic, listing)
    topic.quarantine([home.scrub().damages[0].lost[0]], "lost")

    def restored(*given: object) -> object:
        monkeypatch.setattr(rewrite, "_pages_for_one_object", together)
        restore()
        assert topic.store.run(merge(topic.log, pages(topic)[1:]))
        return together(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "_pages_for_one_object", restored)
    run(topic, LATE)
    for letters in "defghijkl", "mnopqrstuvwyz":
        more(topic, letters)
        run(topic, LATE)
        state = {r.key: r.value for r in topic.records()}
        assert state.get(b"a") is None, "it is deleted"


def listed(topic: Topic, *chunks: str) -> ChunkEntry:
    """Records of these keys on a page of their own, in chunks that a manifest lists, as of a large Spark commit."""
    parts = []
    for keys in chunks:
        buffer = Buffer(1, 1 << 20)
        for key in keys:
            buffer.add(key.lower().encode(), b"v" if key.islower() else None, 2000)
        parts.append(buffer.encode("none"))
    topic.store.run(commit([topic.store.run(gather(topic.log, parts))]))
    close(topic)
    (entry,) = [e for page in pages(topic) for e in page.entries if e.kind & MANIFEST]
    return entry


def test_a_list_restored_in_the_middle_of_a_round(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 100)
    topic = filled(home, "aab")
    restore, together = hidden(topic, listed(topic, "ab", "cb", "ac")), rewrite._pages_for_one_object

    def restored(*given: object) -> object:
        restore()
        return together(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "_pages_for_one_object", restored)
    more(topic, "d")
    assert run(topic, LATE) == 1
    assert shown(topic) == "1a 2b 3a 4b 5c 6b 7a 8c 9d"


@pytest.mark.parametrize("how", ["gone", "harmed"])
def test_a_list_of_chunks_that_cannot_be_read(home: Home, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page stays as it is, and no tombstone behind it goes; the pages around it are compacted."""
    monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 100)
    topic = filled(home, "aab")
    restore = hidden(topic, listed(topic, "ab", "cb", "ac"), how)
    more(topic, "aBBd")
    done = topic.store.run(compact(topic.log, LATE))
    assert done.records == 4
    assert [one.lost for one in done.spared] == [((0, 3, 9),)]
    topic.quarantine(done.spared[0].lost, "lost")
    assert shown(topic) == "9a 11b 12d"
    restore()
    assert shown(topic) == "3a 4b 5c 6b 7a 8c 9a 11b 12d"
    more(topic, "efghijk")
    for _ in range(2):
        run(topic, LATE)
    assert shown(topic).startswith("8c 9a 12d")


def test_pieces_that_are_named_by_nobody_are_tried_one_by_one(home: Home) -> None:
    topic = filled(home, "abc")
    entries = tuple(e for page in pages(topic) for e in page.entries)
    error = unreadable.ObjectMissing("something else")
    assert unreadable.around(topic.log, entries, error) == [(e,) for e in entries]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a|", "A|", "A|", "b|", "Ab|", "!", "!", "!", "<", "<", ">"]), max_size=20),
    st.randoms(),
    st.booleans(),
)
def test_once_all_is_restored_the_last_state_of_each_key_is_what_it_was(
    given: list[str], rng: Random, decided: bool
) -> None:
    """|: a page is closed; !: upkeep; <: a chunk is lost; >: all that is lost is restored."""
    home, _ = simulated_home("objects")
    topic, lost = home.topic("t", partitions=1), list[tuple[ChunkEntry, Callable[[], None]]]()
    want: dict[bytes, bytes | None] = {}
    if decided:
        topic.quarantine([Lost(0, 0, 1000)], "whatever is lost")
    for n, letter in enumerate("".join(given)):
        if letter == "|":
            close(topic)
        elif letter == "<":
            lost += [(entry, hidden(topic, entry)) for entry in _some(topic, rng)]
        elif letter in "!>":
            if letter == "!":
                tended(topic)
            for _, restore in lost:
                restore()
            found = {r.key: r.value for r in topic.records()}
            assert {k: v for k, v in found.items() if v} == {k: v for k, v in want.items() if v}
            lost = [(entry, hidden(topic, entry)) for entry, _ in lost] if letter == "!" else []
        else:
            key, value = letter.lower().encode(), b"%d" % n if letter.islower() else None
            topic.append([(key, value)])
            want[key] = value


def _some(topic: Topic, rng: Random) -> list[ChunkEntry]:
    """One chunk that is there, if there is one."""
    there = topic.store.objects.items  # type: ignore[attr-defined]
    found = [e for p in pages(topic) for e in p.entries if heads.object_name(topic.id, e.gen, e.id) in there]
    return [rng.choice(found)] if found else []
