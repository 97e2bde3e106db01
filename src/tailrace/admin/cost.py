"""Cost estimates: what a topic costs on S3 and DynamoDB, from counted requests.

The topic's own pages say how many chunks were appended to it, and their sizes.  To count requests, the estimate runs
the real append and read code on a home in memory that meters each request as S3 and DynamoDB bill it.  It multiplies
the requests of many commits, with their page rolls, and of an idle consumer by the prices in admin/prices.toml.
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
"""The most bytes that are appended to measure the cost of a GiB; but at least ten commits."""
IDLE_SECONDS = 2.0
LINGERS = (0.1, 0.3, 1.0, 5.0)
"""The producer lingers that are estimated, in seconds; a producer on S3 chooses its own between 0.1 and 1."""
STEPS = len(LINGERS) + 3
"""The number of steps of an estimate, for a progress bar."""


def prices(path: Path | None = None) -> dict[str, Any]:
    """The prices of AWS's requests and storage: tailrace's own list, overridden by those in a TOML file."""
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
        """The number of requests of all kinds."""
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
    """The cost of appending at the estimated rate with one linger: the size of a commit, and what a day and a GiB
    cost."""

    linger: float
    commit_bytes: int
    day: Cost
    gib: Cost


@dataclass(frozen=True, slots=True)
class TrafficCost:
    """The cost of the traffic in a topic's own chunks, scaled to a day."""

    traffic: Traffic
    day: Cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a topic: of a GiB in full chunks, a day of a given volume, reading a GiB, and a day without
    records."""

    partitions: int
    record_bytes: int
    per_day: int
    full: Cost
    rates: tuple[RateCost, ...]
    reading: Cost
    idle_producer: Cost
    idle_consumer: Cost
    real: TrafficCost | None = None
    """The cost of the topic's own recent traffic; None if there is too little of it."""


def estimate(
    partitions: int,
    record_bytes: int,
    per_day: int,
    asked: Mapping[str, Any],
    lately: Traffic | None = None,
    told: Callable[[int], object] = lambda _: None,
) -> Estimate:
    """Estimate the cost of a topic with these partitions, this record size and `per_day` bytes a day; takes seconds.

    `lately` is the topic's own recent traffic.  `told` is called with 1 after each of the `STEPS`."""
    full, reading = _gibibyte(partitions, record_bytes, CHUNK_BYTES, asked)
    told(1)
    rates, known = [], {CHUNK_BYTES: full}
    for linger in LINGERS:
        # a commit has at least one record
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
    """A new topic in memory, and the bill of its requests as S3 and DynamoDB would count them."""
    bill = Bill()
    table = MemoryTable(inline_bytes=MeteredTable.inline_bytes, joins_inline=False, answers=False)
    store = Store(MeteredTable(table, bill), MeteredObjects(MemoryObjects(), bill))
    return Topic(store, store.run(catalog.create("metered", partitions, {}, 0))), bill


def _gibibyte(partitions: int, record: int, commit: int, asked: Mapping[str, Any]) -> tuple[Cost, Cost]:
    """The cost of appending a GiB in commits of this size, and of reading it."""
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
    """What an idle producer, and an idle consumer, cost a day.  Measured for some seconds."""
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


def mean_record_size(topic: Topic) -> int | None:
    """The record size that an estimate uses: the mean stored size of a record in a topic's newest chunks; None if the
    topic has none."""
    entries = topic.store.run(topic.log.head()).own.entries
    runs = [run for entry in entries for run in entry.runs]
    records = sum(run.count for run in runs)
    return sum(run.length for run in runs) // records if records else None
