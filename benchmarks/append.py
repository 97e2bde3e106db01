"""How many records a second can be appended, durably?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.contract import Log
from benchmarks.harness import Figure, Figures, Question, Results, Run, Target, expect, side, timed
from benchmarks.load import Load
from benchmarks.logs import ARROW, DISK, KAFKA, KAFKA_DEFAULT, NATS, PLACED, RECORDS, REDIS

ENTITIES = 2000
REPEATING = replace(ARROW, name="tailrace, Arrow, keys repeat")
RATE, BYTES = Figure("records/s"), Figure("MB/s")


def question(quick: bool) -> Question:
    """Arrow batches and single sends against the peers' bulk paths, and the disk's limit."""
    count = 50_000 if quick else 500_000
    load, repeating = Load(count).built(), Load(count, entities=ENTITIES).built()
    contestants = [ARROW, PLACED, RECORDS, KAFKA, KAFKA_DEFAULT, REDIS, NATS, DISK]
    sides = [side(one, lambda log: appending(log, load), one.bulk) for one in contestants]
    sides.insert(
        1, side(REPEATING, lambda log: appending(log, repeating), f"{ARROW.bulk}, {ENTITIES:,} different keys")
    )
    return Question(
        name="append",
        title="records appended a second",
        note=f"{load.count:,} records of 216 bytes into 8 partitions by keys that are all different (where not said "
        "otherwise: tailrace hashes each different key of a batch once, so keys that repeat cost less), until the last "
        "one is acknowledged. The peers have one bulk path; it stands against all of tailrace's. Redis and NATS have "
        "no partitions by key; they are given one for each record.",
        sides=sides,
        figures=[RATE, BYTES],
        base=ARROW.name,
        targets=TARGETS,
        rounds=3 if quick else 7,
    )


def appending(log: Log, load: Load) -> Run:
    """One round: the whole load, then the count that the log itself gives."""

    def run() -> Figures:
        before = log.count()
        seconds, acknowledged = timed(lambda: log.append(load))
        expect("acknowledged", acknowledged, load.count)
        expect("in the log afterwards", log.count(), before + load.count)
        return {RATE.name: load.count / seconds, BYTES.name: load.size / seconds / 1e6}

    return run


def _of_limit(name: str) -> Callable[[Results], float]:
    return lambda results: results.of(name, BYTES.name) / results.of(DISK.name, BYTES.name)


def _to_peer(name: str) -> Callable[[Results], float]:
    return lambda results: results.of(name, RATE.name) / results.best_peer(RATE)


TARGETS = [
    Target("Arrow ≥ 0.8 of the bytes/s of plain write + fdatasync, keys that repeat", _of_limit(REPEATING.name), 0.8),
    Target("Arrow ≥ 0.8 of the bytes/s of plain write + fdatasync, all different", _of_limit(ARROW.name), 0.8),
    Target("Arrow ≥ 5 times the fastest equally durable peer, keys that repeat", _to_peer(REPEATING.name), 5),
    Target("Arrow ≥ 5 times the fastest equally durable peer, all different", _to_peer(ARROW.name), 5),
    Target("one send a record ≥ 1 times the fastest equally durable peer", _to_peer(RECORDS.name), 1),
    Target("one send a record ≥ 300,000 records/s", lambda results: results.of(RECORDS.name, RATE.name), 300_000),
]
