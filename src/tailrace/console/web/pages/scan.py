"""A bounded scan of a topic: reads from a place on until it has found or read enough, and says how far it has come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.console.cursor import cursor_of, start_at
from tailrace.console.data import Data
from tailrace.console.problems import LostOffsets
from tailrace.console.reading import ReadRecord, read_page
from tailrace.console.web import payload
from tailrace.console.web.visit import Visit
from tailrace.errors import BadInput
from tailrace.log.read.reader import Reader
from tailrace.log.topic import Topic

MOST_RECORDS, MOST_SECONDS, PAGE_BYTES = 50_000, 3.0, 4 * 1024 * 1024
STEP_RECORDS = 2000
Fits = Callable[[ReadRecord], bool]


@dataclass(slots=True)
class Scan:
    """The records that a scan has found, how many it has read for them, and where it began and ended."""

    found: list[ReadRecord] = field(default_factory=list)
    lost: list[LostOffsets] = field(default_factory=list)
    read: int = 0
    start: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def cursor(self) -> str:
        """The cursor from which the next scan continues."""
        return cursor_of(self.next)

    @property
    def left(self) -> int:
        """How many offsets come after the scan."""
        return sum(max(0, end - self.next.get(q, end)) for q, end in self.ends.items() if q in self.next)

    @property
    def passed(self) -> int:
        """How many offsets the scan went over."""
        return sum(self.next[q] - at for q, at in self.start.items())


def wanted(query: str, key: str) -> Fits | None:
    """Return the condition that a search of a topic scans for, or None without one.  A record fits if it has the key,
    and the text in its key or value; `$.a.b=text` looks into JSON."""
    tests: list[Fits] = []
    if key:
        tests.append(lambda record: record.key == key)
    if query.startswith("$"):
        path, found, value = query.partition("=")
        if not found:
            raise BadInput("a search in JSON is $.name=value, as in $.customer.id=17 or $.lines.0.sku=tea")
        names = [part for part in path.strip().removeprefix("$").split(".") if part]
        tests.append(lambda record: _has(record, names, value.strip()))
    elif query:
        small = query.lower()
        tests.append(lambda record: small in _text(record.key) or small in _text(record.value))
    return (lambda record: all(test(record) for test in tests)) if tests else None


def _text(data: Data) -> str:
    return payload.raw(data).decode("utf-8", "replace").lower()


def _has(record: ReadRecord, names: list[str], value: str) -> bool:
    if not isinstance(record.value, str):
        return False
    try:
        found = json.loads(record.value, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return False
    for name in names:
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return False
    return found == value if isinstance(found, str) else json.dumps(found) == value


async def scan(visit: Visit, topic: Topic, partition: int | None, start: str, fits: Fits | None, limit: int) -> Scan:
    """Scan a topic from a place on for up to `limit` records that fit; without a condition, read one page."""
    out = Scan()
    out.start = await visit.served.run(topic.store.run, start_at(topic, partition, start))
    out.ends = {q: end for q, (_, end) in (await visit.served.run(topic.ends)).items() if q in out.start}
    reader = Reader(topic.log, dict(out.start), from_floor=start == "earliest", until=out.ends)
    until = time.monotonic() + MOST_SECONDS
    while len(out.found) < limit and out.read < MOST_RECORDS:
        page = await read_page(visit.served, reader, limit if fits is None else STEP_RECORDS, PAGE_BYTES)
        reader.skipped.clear()
        records = await visit.served.run(page.records, topic.name)
        out.lost += page.losses
        out.next = dict(page.next)
        await visit.served.run(_take, out, records, fits, limit)  # a search decodes JSON, which takes long
        if fits is None or not page.rows or time.monotonic() > until:
            break
        reader.positions.update(out.next)
    return out


def _take(out: Scan, records: list[ReadRecord], fits: Fits | None, limit: int) -> None:
    """Keep the records that fit.  If there is no more room, the next scan continues behind the last record looked at.

    Records of one partition come in order, but partitions come one after the other: the next scan reads those again
    that were not looked at."""
    for at, record in enumerate(records):
        if len(out.found) >= limit:
            for rest in records[at:]:
                out.next[rest.partition] = min(out.next[rest.partition], rest.offset)
            return
        out.read += 1
        if fits is None or fits(record):
            out.found.append(record)
