"""Whole upkeeps as actors of the log's scenarios: retention, merging and cleaning, beside everybody else."""

from __future__ import annotations

from tailrace.log.settings import Settings
from tailrace.log.upkeep import Tended, tend
from tailrace.storage.calls import Steps
from tailrace.testing import Life, Scenario, Simulation
from tests.log.actors import Factory
from tests.log.ghost import log_of
from tests.log.scenarios import Spawn, a, made, names, reads, rolls

MERGES = Settings(merge_bytes=2500)
"""Three chunks of one record are worth being merged, six make an object."""
KEEPS = Settings(merge_bytes=2500, retention_bytes=1500)


def tender(sim: Simulation, settings: Settings, times: int) -> Factory:
    def run(life: Life) -> Steps[None]:
        for _ in range(times):
            yield from tend(log_of(sim, life.rng), settings, Tended("t"), 10_000)

    return run


def tends(settings: Settings = MERGES, name: str = "tender", times: int = 2, restarts: int = 1) -> Spawn:
    return lambda sim: sim.spawn(name, tender(sim, settings, times), restarts)


SCENARIOS: dict[str, Scenario] = {
    "tend": made(a((0,), (0, 1), (0,)), rolls(), tends(), reads(), reads(1), pages=4),
    "tend2": made(a((0,), (0,)), rolls(), tends(), tends(KEEPS, "tender2"), reads(), pages=4),
    "keep": made(a((0,), (0, 1)), a((1, 0), name="b"), names(1), rolls(), tends(KEEPS), reads(), pages=3),
    "forget": made(a((0,), (0,)), rolls(times=4), tends(times=4), pages=3),
}
