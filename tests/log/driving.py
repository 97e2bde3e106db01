"""Steps advanced by hand, one call at a time, so that a test decides who moves and which answers get lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tailrace.errors import TailraceError, TimedOut
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import Page
from tailrace.log.topic import Topic
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.buffer import Buffer
from tailrace.storage.calls import Call, Steps, Store
from tailrace.storage.tables import LAST
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable

TABLES = {
    "objects": {"inline_bytes": 0, "joins_inline": False, "answers": False},
    "items": {"inline_bytes": 65536, "joins_inline": False, "answers": False},
    "joined": {"inline_bytes": 65536, "joins_inline": True, "answers": True},
}
"""How small chunks are kept: as on S3 + DynamoDB with large and with small chunks, and as on SQLite."""


class Driven:
    """Steps at work on a store.  `call` is what they wait for; once `done`, there is a `result` or an `error`."""

    def __init__(self, store: Store, steps: Steps[Any]) -> None:
        self.store, self.steps = store, steps
        self.call: Call | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._resume(steps.send, None)

    @property
    def done(self) -> bool:
        return self.call is None

    def step(self) -> Driven:
        """Carry out the call it waits for."""
        assert self.call is not None, "these steps have ended"
        try:
            answer = self.store.answer(self.call)
        except TailraceError as error:
            self._resume(self.steps.throw, error)
        else:
            self._resume(self.steps.send, answer)
        return self

    def fail(self, error: Exception) -> Driven:
        """The call raises this, and nothing happens."""
        self._resume(self.steps.throw, error)
        return self

    def lose(self) -> Call:
        """The call has no answer; gives it, to be landed later or never."""
        sent = self.call
        assert sent is not None
        self.fail(TimedOut("sent, no answer"))
        return sent

    def until(self, kind: type) -> Driven:
        """Go on until it waits for a call of this kind, or has ended."""
        while not self.done and not isinstance(self.call, kind):
            self.step()
        return self

    def run(self) -> Any:
        """Go on to the end; gives the result, or raises."""
        while not self.done:
            self.step()
        if self.error is not None:
            raise self.error
        return self.result

    def _resume(self, resume: Any, answer: Any) -> None:
        try:
            self.call = resume(answer)
        except StopIteration as stop:
            self.call, self.result = None, stop.value
        except Exception as error:
            self.call, self.error = None, error


def land(store: Store, call: Call) -> None:
    """What was sent arrives; nobody is told how it went."""
    with suppress(TailraceError):
        store.answer(call)


def simulated(kept: str = "joined", **settings: Any) -> tuple[Store, ManualClock]:
    """A store in memory, and the clock that its pauses move."""
    clock = ManualClock()
    table = SimulatedTable(**{**TABLES[kept], **settings})
    return Store(table, SimulatedObjects(), clock.monotonic, clock.move), clock


def simulated_home(kept: str = "joined", **settings: Any) -> tuple[Home, ManualClock]:
    """A home on such a store."""
    store, clock = simulated(kept, **settings)
    return Home("memory:", store), clock


def homes_with_small_pages(full: int) -> Any:
    """A fixture `home` whose topics' pages close at so many bytes, with chunks as objects and with the head."""

    @pytest.fixture(params=["objects", "joined"])
    def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Home:
        monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", full)
        return simulated_home(request.param)[0]

    return home


def pages(topic: Topic) -> list[Page]:
    """The closed pages of a topic."""
    items = topic.store.table.query(heads.head_key(topic.id).p, 0, LAST - 1).items
    return [Page.of(item) for item in items]


def new_log(store: Store, id: str = "t0", partitions: int = 2) -> TopicLog:
    """A topic made by its head alone."""
    store.table.write(heads.new_head(id, partitions))
    return view(store, id)


def view(store: Store, id: str = "t0") -> TopicLog:
    """A topic as another process sees it."""
    return TopicLog("t" if id == "t0" else id, id, store.table.inline_bytes, store.table.joins_inline)


def chunk(*records: tuple[int, bytes], partitions: int = 2) -> Chunk:
    """A chunk of (partition, value)s."""
    buffer = Buffer(partitions, 1 << 20)
    for q, value in records:
        buffer.add(None, value, 1000, partition=q)
    return buffer.encode("none")


def stored(store: Store, log: TopicLog, partition: int) -> list[bytes]:
    """What a reader finds in a partition."""
    from tailrace.log.read.reader import Reader

    reader, out = Reader(view(store, log.id), {partition: 0}, from_floor=True), []
    while fetched := store.run(reader.poll()):
        for run in fetched:
            out += run.data.column("value").to_pylist()
    return out
