"""What a topic costs in the cloud: counted, not guessed.

A topic's own pages, where it has any, say how many chunks were appended to it, and their sizes.  Requests are counted,
too: the real code appends and reads here on a home in memory that meters every request as S3 and DynamoDB would.  The
requests of many commits, rolls included, and of an idle consumer are multiplied by the prices in admin/prices.toml.
"""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.admin.meter import Bill, MeteredObjects, MeteredTable
from tailrace.admin.traffic import Traffic
from tailrace.errors import BadInput, BadSetting
from tailrace.log import catalog
from tailrace.log.topic import Topic
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.storage.calls import Store
from tailrace.storage.memory.objects import MemoryObjects
from tailrace.storage.memory.table import MemoryTable

DAY_SECONDS = 86_400
GIB = 1 << 30
METERED_COMMITS = 120
METERED_BYTES = 16 << 20
"""Bytes that are appended to measure what a GiB costs, in at least ten commits."""
IDLE_SECONDS = 2.0
LINGERS = (0.1, 0.3, 1.0, 5.0)
"""Seconds that a commit waits for company; producers in the cloud find theirs between 0.1 and 1."""
STEPS = len(LINGERS) + 3
"""Parts of an estimate, for a progress bar."""


def prices(path: Path | None = None) -> dict[str, Any]:
    """The prices tailrace comes with, changed by those of a file."""
    found = tomllib.loads(resources.files("tailrace.admin").joinpath("prices.toml").read_text())
    if path is not None:
        try:
            own = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise BadInput(f"the prices in {path} cannot be read: {error}") from error
        for name, value in own.items():
            if name not in found:
                raise BadSetting.unknown("a file of prices", name, found)
            if type(found[name]) is float and not isinstance(value, (int, float)):
                raise BadInput(f"{name} in {path} is a number, not {value!r}")
        found |= own
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests by kind, and dollars."""

    requests: Mapping[str, float]
    dollars: float

    @property
    def total(self) -> float:
        """All requests."""
        return sum(self.requests.values())

    def times(self, factor: float) -> Cost:
        """This cost, multiplied."""
        return Cost({name: count * factor for name, count in self.requests.items()}, self.dollars * factor)

    @classmethod
    def of(cls, bill: Bill, asked: Mapping[str, Any]) -> Cost:
        """The cost of the metered requests at these prices."""
        units, requests = bill.units, bill.requests
        dollars = (
            units["writes"] * asked["write_units_million"] / 1e6
            + units["reads"] * asked["read_units_million"] / 1e6
            + (requests["put"] + requests["list"]) * asked["puts_thousand"] / 1e3
            + requests["get"] * asked["gets_thousand"] / 1e3
        )
        return cls(dict(requests), dollars)


@dataclass(frozen=True, slots=True)
class RateCost:
    """What it costs to append at some rate with a linger: the size of the commits, and the cost of a day and of a
    GiB."""

    linger: float
    commit_bytes: int
    day: Cost
    gib: Cost


@dataclass(frozen=True, slots=True)
class TrafficCost:
    """What a topic's stored chunks have cost, scaled to a day of the same traffic."""

    traffic: Traffic
    day: Cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a topic costs: a GiB in full chunks, a day of a given volume, reading a GiB, and a day without records."""

    partitions: int
    record_bytes: int
    per_day: int
    full: Cost
    rates: tuple[RateCost, ...]
    reading: Cost
    idle_producer: Cost
    idle_consumer: Cost
    real: TrafficCost | None = None
    """By the topic's own traffic; None if there is too little of it."""


def estimate(
    partitions: int,
    record_bytes: int,
    per_day: int,
    asked: Mapping[str, Any],
    lately: Traffic | None = None,
    told: Callable[[int], object] = lambda _: None,
) -> Estimate:
    """Meter a topic with so many partitions, records of this size and so many bytes a day; `lately` is its own recent
    traffic.  `told` is called with 1 as each of the `STEPS` is done."""
    full, reading = _gibibyte(partitions, record_bytes, CHUNK_BYTES, asked)
    told(1)
    rates, known = [], {CHUNK_BYTES: full}
    for linger in LINGERS:
        # a record that comes alone is committed alone
        commit = int(min(max(per_day / DAY_SECONDS * linger, record_bytes), CHUNK_BYTES))
        if commit not in known:
            known[commit], _ = _gibibyte(partitions, record_bytes, commit, asked)
        told(1)
        rates.append(RateCost(linger, commit, known[commit].times(per_day / GIB), known[commit]))
    real = _real(partitions, lately, asked) if lately is not None else None
    told(1)
    producer, consumer = _idle(partitions, asked)
    told(1)
    return Estimate(partitions, record_bytes, per_day, full, tuple(rates), reading, producer, consumer, real)


def _real(partitions: int, lately: Traffic, asked: Mapping[str, Any]) -> TrafficCost:
    record = max(1, lately.bytes // max(1, lately.records))
    chunk = min(lately.chunk_bytes, CHUNK_BYTES)
    gib, _ = _gibibyte(partitions, record, chunk, asked)
    metered = chunk // record * record or record
    return TrafficCost(lately, gib.times(lately.chunks * metered / GIB * DAY_SECONDS / lately.seconds))


def _scratch(partitions: int) -> tuple[Topic, Bill]:
    """A topic in memory, metered as in the cloud."""
    bill = Bill()
    table = MemoryTable(inline_bytes=MeteredTable.inline_bytes, joins_inline=False, answers=False)
    store = Store(MeteredTable(table, bill), MeteredObjects(MemoryObjects(), bill))
    return Topic(store, store.run(catalog.create("metered", partitions, {}, 0))), bill


def _gibibyte(partitions: int, record: int, commit: int, asked: Mapping[str, Any]) -> tuple[Cost, Cost]:
    """What appending, and reading, a GiB in commits of this size costs."""
    topic, bill = _scratch(partitions)
    count = max(1, commit // record)
    commits = max(10, min(METERED_COMMITS, METERED_BYTES // (count * record)))
    keys = pa.array([b"%08d" % n for n in range(count)], pa.binary())
    records = pa.table({"key": keys, "value": pa.repeat(pa.scalar(bytes(max(1, record - 8)), pa.binary()), count)})
    topic.ends()
    bill.clear()
    for _ in range(commits):
        topic.append(records)
    scale = GIB / (commits * count * record)
    appended = Cost.of(bill, asked).times(scale)
    bill.clear()
    for _ in topic.fetch():
        pass
    return appended, Cost.of(bill, asked).times(scale)


def _idle(partitions: int, asked: Mapping[str, Any]) -> tuple[Cost, Cost]:
    """What an idle producer and an idle consumer cost a day."""
    topic, bill = _scratch(partitions)
    with topic.producer() as out:
        out.send(b"k", b"v").result(60)
        bill.clear()
        time.sleep(IDLE_SECONDS / 4)
        producer = Cost.of(bill, asked).times(DAY_SECONDS / (IDLE_SECONDS / 4))
    with topic.consumer("idle", start="latest") as consumer:
        waiting = threading.Thread(target=lambda: [None for _ in consumer], name="tailrace-cost", daemon=True)
        waiting.start()
        began = time.monotonic()
        while len(consumer.partitions) < partitions and time.monotonic() - began < 10:
            time.sleep(0.05)
        time.sleep(IDLE_SECONDS / 4)
        bill.clear()
        time.sleep(IDLE_SECONDS)
        idle = Cost.of(bill, asked).times(DAY_SECONDS / IDLE_SECONDS)
        consumer.close()
        waiting.join()
    return producer, idle


def usual(topic: Topic) -> int | None:
    """The usual size of a topic's records, by its newest chunks; None if it has none."""
    entries = topic.store.run(topic.log.head()).own.entries
    runs = [run for entry in entries for run in entry.runs]
    records = sum(run.count for run in runs)
    return sum(run.length for run in runs) // records if records else None
