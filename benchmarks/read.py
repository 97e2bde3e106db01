"""How many records a second can be read back?"""

from __future__ import annotations

from benchmarks.contract import Log
from benchmarks.harness import Figure, Figures, Question, Results, Run, Target, expect, side, timed
from benchmarks.load import VALUE, Load, fingerprint
from benchmarks.logs import ARROW, DISK, GROUP, KAFKA, NATS, RECORDS, REDIS

RATE, BYTES = Figure("records/s"), Figure("MB/s")


def question(quick: bool) -> Question:
    """A topic read from its beginning, as Arrow and as records, against each peer's fastest consumer."""
    load = Load(50_000 if quick else 500_000).built()
    contestants = [ARROW, RECORDS, GROUP, KAFKA, REDIS, NATS, DISK]
    written = fingerprint(load.pairs())
    return Question(
        name="read",
        title="records read back a second",
        note=f"{load.count:,} records of 216 bytes from 8 partitions, still in the page cache; each side adds up the "
        "lengths of the values. Before the clock starts, every key and value that comes back is compared with what "
        "was appended.",
        sides=[side(one, lambda log: reading(log, load, written), one.reader) for one in contestants],
        figures=[RATE, BYTES],
        base=ARROW.name,
        targets=TARGETS,
        rounds=3 if quick else 7,
    )


def reading(log: Log, load: Load, written: tuple[int, int]) -> Run:
    """Fill and compare the topic; one round reads it once."""
    expect("acknowledged", log.append(load), load.count)
    expect("count and fingerprint read back", fingerprint(log.pairs()), written)

    def run() -> Figures:
        seconds, read = timed(log.read)
        expect("records and bytes read", read, (load.count, load.count * VALUE))
        return {RATE.name: load.count / seconds, BYTES.name: load.size / seconds / 1e6}

    return run


def _arrow_to_peer(results: Results) -> float:
    return results.of(ARROW.name, RATE.name) / results.best_peer(RATE)


def _records_to_peer(results: Results) -> float:
    return results.of(RECORDS.name, RATE.name) / results.best_peer(RATE)


TARGETS = [
    Target("as Arrow ≥ 10 times the fastest peer", _arrow_to_peer, 10),
    Target("as records ≥ 2 times the fastest peer", _records_to_peer, 2),
]
