"""How many records a second can be appended, durably?"""

from __future__ import annotations

from benchmarks.contract import Log
from benchmarks.harness import Figure, Figures, Question, Results, Run, Target, expect, side, timed
from benchmarks.load import Load
from benchmarks.logs import ARROW, DISK, KAFKA, KAFKA_DEFAULT, NATS, PLACED, RECORDS, REDIS

RATE, BYTES = Figure("records/s"), Figure("MB/s")


def question(quick: bool) -> Question:
    """Arrow batches and single sends against the peers' bulk paths, and the disk's limit."""
    load = Load(50_000 if quick else 500_000).built()
    contestants = [ARROW, PLACED, RECORDS, KAFKA, KAFKA_DEFAULT, REDIS, NATS, DISK]
    return Question(
        name="append",
        title="records appended a second",
        note=f"{load.count:,} records of 216 bytes into 8 partitions by keys that are all different, until the last "
        "one is acknowledged. The peers have one bulk path; it stands against both of tailrace's.",
        sides=[side(one, lambda log: appending(log, load), one.bulk) for one in contestants],
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


def _of_limit(results: Results) -> float:
    return results.of(ARROW.name, BYTES.name) / results.of(DISK.name, BYTES.name)


def _arrow_to_peer(results: Results) -> float:
    return results.of(ARROW.name, RATE.name) / results.best_peer(RATE)


def _records_to_peer(results: Results) -> float:
    return results.of(RECORDS.name, RATE.name) / results.best_peer(RATE)


TARGETS = [
    Target("Arrow batches ≥ 0.8 of the bytes/s of plain write + fdatasync at 4 MiB", _of_limit, 0.8),
    Target("Arrow batches ≥ 5 times the fastest equally durable peer", _arrow_to_peer, 5),
    Target("one send a record ≥ 1 times the fastest equally durable peer", _records_to_peer, 1),
    Target("one send a record ≥ 300,000 records/s", lambda results: results.of(RECORDS.name, RATE.name), 300_000),
]
