"""What a deployed home costs a month: `python deploy/aws/cost.py` prints the table of README.md.

The requests are metered (tailrace.admin): the code that appends, reads and indexes runs on a home in memory that counts
every call as DynamoDB and S3 would.  Lambda's share is reckoned from how often it is started.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from tailrace.admin.cost import DAY_SECONDS, GIB, Cost, estimate, prices
from tailrace.admin.meter import Bill, MeteredTable
from tailrace.events import Event, Events
from tailrace.feed.index import Indexer
from tailrace.feed.span import Span
from tailrace.storage.calls import Store
from tailrace.storage.objects import NoObjects
from tailrace.testing import SimulatedTable

RATES = (1, 100, 10_000)
RECORD_BYTES, EVENT_BYTES, STREAM_EVENTS = 1024, 300, 20
MONTH = 30 * DAY_SECONDS
ALARMS = 4
ALARM_MONTH = 0.10
LAMBDA_MILLION, LAMBDA_GB_SECOND = 0.20, 0.0000133334
STARTS_SECOND = 1
"""Each function gathers changes for a second before it is started."""
INDEXER_GB, INDEXER_SECONDS, CONSUMER_GB, CONSUMER_SECONDS = 1.0, 0.05, 1769 / 1024, 0.3
"""Memory, and how long one start takes."""


def topic_month(rate: float) -> tuple[float, float]:
    """Dollars a month for appending to a topic at a rate by one producer, and for reading it once."""
    per_day = int(rate * RECORD_BYTES * DAY_SECONDS)
    linger = 1.0 if rate * RECORD_BYTES < 2**19 else 0.1 if rate * RECORD_BYTES > 5 * 2**20 else 0.3
    found = estimate(8, RECORD_BYTES, per_day, prices())
    appended = next(one for one in found.rates if one.linger == linger)
    return appended.day.dollars * 30, found.reading.dollars * per_day / GIB * 30


def events_month(rate: float) -> float:
    """Dollars a month for appending events one by one, to streams of twenty."""
    store, bill = _metered()
    for stream in range(20):
        for _ in range(STREAM_EVENTS):
            Events(store).stream(f"Cart-{stream}").append([Event("Added", b64encode(bytes(EVENT_BYTES * 3 // 4)))])
    return Cost.of(bill, prices()).dollars / (20 * STREAM_EVENTS) * rate * MONTH


def index_month(rate: float) -> float:
    """Dollars a month for the writes of the indexer, which is started at most once a second."""
    store, bill = _metered()
    indexer, batches = Indexer(), 400
    each = max(1, round(rate / STARTS_SECOND))
    for batch in _spans(batches, each):
        store.run(indexer.ingest(batch))
    return Cost.of(bill, prices()).dollars / (batches * each) * rate * MONTH


def _spans(batches: int, each: int) -> Iterator[list[Span]]:
    for batch in range(batches):
        numbers = range(batch * each, (batch + 1) * each)
        yield [Span(f"Cart-{n // STREAM_EVENTS}", n % STREAM_EVENTS, ("Added",)) for n in numbers]


def _metered() -> tuple[Store, Bill]:
    bill = Bill()
    return Store(MeteredTable(SimulatedTable(), bill), NoObjects()), bill


def lambda_month(starts: float, gigabytes: float, seconds: float) -> float:
    """Dollars a month for this number of starts a second."""
    return starts * MONTH * (LAMBDA_MILLION / 1e6 + gigabytes * seconds * LAMBDA_GB_SECOND)


def rows() -> Iterator[tuple[str, list[float]]]:
    """What is paid for, and how much at each rate."""
    starts = [min(rate, STARTS_SECOND) for rate in RATES]
    topics = [topic_month(rate) for rate in RATES]
    yield "append to a topic", [appended for appended, _ in topics]
    yield "read that topic once", [read for _, read in topics]
    yield "the consumer's function", [lambda_month(one, CONSUMER_GB, CONSUMER_SECONDS) for one in starts]
    yield "append to event streams", [events_month(rate) for rate in RATES]
    yield "write the index", [index_month(rate) for rate in RATES]
    # Each write of the index starts the indexer once more, for nothing.
    yield "the indexer's function", [lambda_month(2 * one, INDEXER_GB, INDEXER_SECONDS) for one in starts]


def main() -> None:
    """Print the table."""
    asked: dict[str, Any] = prices()
    idle = ALARMS * ALARM_MONTH
    print(f"dollars a month, {asked['region']}, {asked['date']}; idle: {idle:.2f}, for {ALARMS} alarms\n")
    print("| work | " + " | ".join(f"{rate:,}/s" for rate in RATES) + " |")
    print("|---|" + "--:|" * len(RATES))
    for name, dollars in rows():
        print(f"| {name} | " + " | ".join(f"{one:,.2f}" for one in dollars) + " |")


if __name__ == "__main__":
    main()
