"""How long does one durable append take, one after the other?"""

from __future__ import annotations

from benchmarks.contract import Log, Pair
from benchmarks.harness import Figure, Figures, Question, Results, Run, Target, expect, side
from benchmarks.load import Load
from benchmarks.logs import DISK, DISK_IN_PLACE, KAFKA, KAFKA_DEFAULT, NATS, RECORDS, REDIS

HALF, MOST = Figure("p50 ms", 3, more=False), Figure("p99 ms", 3, more=False)


def question(quick: bool) -> Question:
    """A record sent and waited for, then the next, against the peers and one fdatasync."""
    load = Load(300 if quick else 2000)
    contestants = [RECORDS, KAFKA, KAFKA_DEFAULT, REDIS, NATS, DISK, DISK_IN_PLACE]
    return Question(
        name="latency",
        title="milliseconds for one durable append",
        note=f"{load.count:,} records of 216 bytes by one thread, each waited for before the next is sent. "
        "The last two sides write the same 216 bytes and call fdatasync.",
        sides=[side(one, lambda log: waiting(log, list(load.pairs())), one.single) for one in contestants],
        figures=[HALF, MOST],
        base=RECORDS.name,
        targets=TARGETS,
        rounds=3 if quick else 7,
    )


def waiting(log: Log, pairs: list[Pair]) -> Run:
    """One round: all the records, one by one."""

    def run() -> Figures:
        before = log.count()
        seconds = sorted(log.append_each(pairs, 1))
        expect("in the log afterwards", log.count(), before + len(pairs))
        return {HALF.name: seconds[len(seconds) // 2] * 1000, MOST.name: seconds[len(seconds) * 99 // 100] * 1000}

    return run


def _over_sync(results: Results) -> float:
    sync = min(results.of(disk.name, HALF.name) for disk in (DISK, DISK_IN_PLACE))
    return results.of(RECORDS.name, HALF.name) - sync


TARGETS = [Target("p50 at most 0.3 ms over one write + fdatasync, the faster kind", _over_sync, 0.3, at_most=True)]
