"""Numbered appends of what tasks have stored: each batch once, whoever dies, repeats or cleans in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tailrace.coordination import guard
from tailrace.coordination.rules import without
from tailrace.errors import ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import clean
from tailrace.log.write import joint_append
from tailrace.log.write.joint_append import gather
from tailrace.log.write.numbered_append import append_once, stored
from tailrace.log.write.placement import Placed, place
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.testing import Life, Scenario, Simulation, Violation, check_schedules, one_schedule
from tests.log.actors import Factory, chunk
from tests.log.ghost import Ghost, ghost_of, log_of, must
from tests.log.scenarios import TABLES, TORN, Spawn, a, cleans, made, merges, reads, retains, rolls, small_pages

BATCHES, PARTS = 3, range(3)


def driver(sim: Simulation) -> Factory:
    """A query's driver: tasks put chunks, it appends them under the batch's number; a new life repeats the last batch.

    The third part of a batch is still in the driver's hand, as small ones are."""

    def run(life: Life) -> Steps[None]:
        for seq in range(max(2, sim.ghosts.get("reached", 2)), 2 * BATCHES + 1, 2):  # numbers are left out
            sim.ghosts["reached"] = seq
            records = [b"q.%d" % (seq * 10 + n) for n in PARTS]
            while True:
                try:
                    yield from _batch(sim, life, seq, records)
                    break
                except ObjectMissing:  # cleaned away while it was slow: the tasks run again
                    must(ghost_of(sim).head(sim).fence > 0, "cleaned away, and nobody has cleaned")
            for record in records:
                ghost_of(sim).ack(sim, 0, record, None)

    return run


def _batch(sim: Simulation, life: Life, seq: int, records: list[bytes]) -> Steps[None]:
    parts: list[joint_append.EntryOrChunk] = []
    for record in records[:-1]:
        log = log_of(sim, life.rng)
        log.inline_bytes = 0
        parts += (yield from place(log, chunk(((0, record),)))).entries
    placed = yield from gather(log_of(sim, life.rng), [*parts, chunk(((0, records[-1]),))])
    yield from append_once("q", seq, [placed])


def drives(restarts: int = 2) -> Spawn:
    return lambda sim: sim.spawn("driver", driver(sim), restarts)


def zombie(sim: Simulation) -> None:
    """Another driver of the same query, which should not be there."""
    sim.spawn("zombie", driver(sim), 0, dies=True)


SCENARIOS: dict[str, Scenario] = {
    "alone": made(drives(), rolls(), cleans(times=3), reads()),
    "company": made(drives(1), a((0,), (0, 1)), rolls(), cleans(times=3), retains(), merges(), reads()),
    "zombie": made(drives(1), zombie, rolls(), cleans()),
}


@contextmanager
def listing(limit: int) -> Iterator[None]:
    """With 0, everything goes through a manifest."""
    with (
        small_pages(),
        patch.object(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", limit),
        patch.object(Ghost, "most", 1 + len(PARTS)),
    ):
        yield


@pytest.mark.parametrize("limit", [0, manifest.MAX_ENTRY_BYTES_WITHOUT_MANIFEST])
@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_batch_is_appended_once(scenario: str, kept: str, limit: int) -> None:
    with listing(limit):
        check_schedules(SCENARIOS[scenario], range(60), table=TABLES[kept], torn=TORN[kept])


def _found(scenario: str, what: str, kept: str = "objects") -> Violation | None:
    for seed in range(1500):
        _, violation = one_schedule(SCENARIOS[scenario], seed, table=TABLES[kept], torn=TORN[kept])
        if violation is not None:
            print(seed, violation)
            assert what in violation.what
            return violation
    return None


def test_without_the_number_a_batch_would_be_there_twice() -> None:
    with listing(manifest.MAX_ENTRY_BYTES_WITHOUT_MANIFEST), without("once.seq"):
        assert _found("zombie", "a record twice") is not None


def _put_under_newest_gen(topic_id: str, entries: list[ChunkEntry], new_id: Callable[[], str]) -> Steps[ChunkEntry]:
    data = manifest._encode([heads.pack(entry) for entry in entries])

    def put() -> Steps[ChunkEntry]:
        newest = yield from TopicLog("t", topic_id).head()
        made = ChunkEntry(new_id(), False, newest.gen, MANIFEST, manifest._totals(entries, data))
        yield from calls.put_object(heads.object_name(topic_id, made.gen, made.id), [data])
        return made

    return (yield from guard.persist(put))


def test_a_manifest_must_be_fenced_with_what_it_lists() -> None:
    with listing(0), patch.object(joint_append.manifest, "put_manifest", _put_under_newest_gen):
        assert _found("company", "committed bytes deleted") is not None


def test_cleaning_must_know_what_manifests_list() -> None:
    def not_expanded(topic_id: str, entry: ChunkEntry) -> Steps[tuple[ChunkEntry, ...]]:
        return (entry,)
        yield

    with listing(0), patch.object(clean, "expand", not_expanded):
        assert _found("alone", "committed bytes deleted") is not None


def test_a_number_that_is_there_is_answered_with_what_is_stored(simulation: Simulation) -> None:
    log = log_of(simulation)

    def once(seq: int, record: bytes) -> object:
        def steps() -> Steps[object]:
            placed: Placed = yield from gather(log, [chunk(((0, record),))])
            return (yield from append_once("q", seq, [placed]))

        return simulation.do(steps())

    assert once(1, b"q.1") is None
    assert once(1, b"q.2")["seq"] == 1  # type: ignore[index]
    assert once(7, b"q.3") is None
    assert once(5, b"q.4")["seq"] == 7  # type: ignore[index]
    item = simulation.do(stored("q"))
    assert (item["seq"], item["topics"]) == (7, [log.id])
    ghost_of(simulation).check(simulation)
    assert ghost_of(simulation).log[0] == [b"q.1", b"q.3"]


@pytest.fixture
def simulation() -> Simulation:
    sim = Simulation(1, table=TABLES["joined"]())
    made()(sim)
    return sim
