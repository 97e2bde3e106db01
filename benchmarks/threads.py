"""What do many threads gain that each wait for their own append?"""

from __future__ import annotations

from benchmarks.contract import Log, Pair
from benchmarks.harness import Figure, Figures, Question, Results, Run, Target, expect, side, timed
from benchmarks.load import Load
from benchmarks.logs import KAFKA, NATS, RECORDS, REDIS

THREADS = 16
ONE, MANY = Figure("1 thread, appends/s"), Figure(f"{THREADS} threads, appends/s")
GAIN = Figure("gain", 2, ratio=False)


def question(quick: bool) -> Question:
    """Single durable appends by one thread and by sixteen."""
    load = Load(320 if quick else 1600)
    contestants = [RECORDS, KAFKA, REDIS, NATS]
    return Question(
        name="threads",
        title="single durable appends by one thread and by sixteen",
        note=f"{load.count:,} records by one thread and {4 * load.count:,} by sixteen, each waited for by its thread "
        "(NATS: tasks of one event loop).",
        sides=[side(one, lambda log: racing(log, list(load.pairs())), one.single) for one in contestants],
        figures=[ONE, MANY, GAIN],
        base=RECORDS.name,
        targets=[Target("16 threads ≥ 8 times one thread", _gain, 8)],
        rounds=3 if quick else 7,
    )


def racing(log: Log, pairs: list[Pair]) -> Run:
    """One round: one appender, then sixteen."""

    def run() -> Figures:
        one, many = rate(log, pairs, 1), rate(log, pairs * 4, THREADS)
        return {ONE.name: one, MANY.name: many, GAIN.name: many / one}

    return run


def rate(log: Log, pairs: list[Pair], at_once: int) -> float:
    """Appends a second, checked against the log's own count."""
    before = log.count()
    seconds, each = timed(lambda: log.append_each(pairs, at_once))
    expect("acknowledged", len(each), len(pairs))
    expect("in the log afterwards", log.count(), before + len(pairs))
    return len(pairs) / seconds


def _gain(results: Results) -> float:
    return results.of(RECORDS.name, GAIN.name)
