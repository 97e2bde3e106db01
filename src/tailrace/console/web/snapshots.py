"""Snapshots: the state of the whole home, read once for all open pages, and its history over the last minutes.

The server takes a look only when a page asks, and then not again for `LONG` times as long as the look took, up to
MAX_PAUSE_SECONDS.  So pages cost the server about a hundredth of a core, however many topics there are, and a home in
the cloud no more than its interval.  The faster one of the last two looks sets the pace, so that one slow look does
not: the first look is slow, since it opens everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from tailrace.console.api import groups, pipelines, queues, topics
from tailrace.console.api.groups import GroupSummary
from tailrace.console.api.pipelines import PipelineStatus
from tailrace.console.api.queues import QueueSummary
from tailrace.console.api.topics import TopicSummary
from tailrace.console.operation import Call

LONG = 100
MAX_PAUSE_SECONDS = 60.0
KEEP_SECONDS, MAX_KEEP_SECONDS = 20.0, 3600.0
"""How long a result is kept at least, and at most that of a scan."""
T = TypeVar("T")
MOST_POINTS = 180
RATE_SECONDS = 30.0
"""Seconds over which a rate is measured, or as many of them as were seen."""
Series = tuple[str, str]
"""A series of values: what is measured, and of which object, as in ("appended", "orders")."""


@dataclass(slots=True)
class Look:
    """The state of a home at one moment."""

    at: float = 0.0
    topics: list[TopicSummary] = field(default_factory=list)
    groups: list[GroupSummary] = field(default_factory=list)
    queues: list[QueueSummary] = field(default_factory=list)
    pipelines: list[PipelineStatus] = field(default_factory=list)


class Kept(NamedTuple):
    """A result that pages share: the task that makes it, whether that is a scan, and until when it is kept."""

    task: asyncio.Task[Any]
    scan: bool
    until: float = float("inf")


class Snapshots:
    """Takes looks at a home, and keeps their values over time.  To be used on one event loop."""

    def __init__(self, shortest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._shortest, self._clock = shortest, clock
        self._next = self._took = 0.0
        self._lock = asyncio.Lock()
        self.last = Look()
        self._kept: dict[tuple[str, ...], Kept] = {}
        self._series: defaultdict[Series, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=MOST_POINTS))

    async def look(self, call: Call) -> Look:
        """Return the last look, or take a new one if it is due."""
        async with self._lock:
            started = self._clock()
            if started < self._next:
                return self.last
            self.last = await self._taken(call)
            now = self._clock()
            faster, self._took = min(self._took, now - started), now - started
            self._next = now + min(MAX_PAUSE_SECONDS, max(self._shortest, LONG * faster))
            self._keep(self.last)
            return self.last

    def forget(self) -> None:
        """Make the next page look again, since an action has changed something.  Scans stay."""
        self._next = 0.0
        self._kept = {key: kept for key, kept in self._kept.items() if kept.scan}

    async def keep(
        self, key: tuple[str, ...], make: Callable[[], Coroutine[Any, Any, T]], seconds: float = KEEP_SECONDS, *,
        scan: bool = False,
    ) -> T:  # fmt: skip
        """Return the result of `make`, which is shared by all requests, also by those that come while it is made.  It
        is kept under `key` for some seconds; a `scan` of the whole home for `LONG` times as long as it took, too."""
        found, now = self._kept.get(key), self._clock()
        if found is None or found.until < now:
            self._kept = {k: kept for k, kept in self._kept.items() if kept.until >= now}
            found = self._kept[key] = Kept(asyncio.ensure_future(make()), scan)
            found.task.add_done_callback(partial(self._made, key, now, seconds))
        value: T = await asyncio.shield(found.task)  # its first caller may leave while others wait
        return value

    def _made(self, key: tuple[str, ...], began: float, seconds: float, task: asyncio.Task[Any]) -> None:
        """Keep a result from now on, or nothing if `make` has failed."""
        failed, now = task.cancelled() or task.exception() is not None, self._clock()
        if (found := self._kept.get(key)) is not None and found.task is task:
            if failed:
                del self._kept[key]
            else:
                pause = min(MAX_KEEP_SECONDS, LONG * (now - began)) if found.scan else 0.0
                self._kept[key] = Kept(task, found.scan, now + max(seconds, pause))

    async def _taken(self, call: Call) -> Look:
        found = Look(time.time())
        after = ""
        while True:
            some = await topics.list_topics(call, topics.TopicListQuery(after=after, limit=1000))
            found.topics += some.topics
            if some.next is None:
                break
            after = some.next
        found.groups = (await groups.list_groups(call, groups.GroupListQuery())).groups
        found.queues = (await queues.list_queues(call)).queues
        found.pipelines = (await pipelines.list_pipelines(call)).pipelines
        return found

    def _keep(self, look: Look) -> None:
        seen: dict[Series, float] = {("appended", one.name): one.appended for one in look.topics}
        for group in look.groups:
            seen["lag", f"{group.group}/{group.topic}"] = group.lag.records
            seen["lag seconds", f"{group.group}/{group.topic}"] = group.lag.seconds
        for queue in look.queues:
            seen["backlog", queue.name] = queue.counts.backlog
            seen["acked", queue.name] = queue.counts.acked
        for pipeline in look.pipelines:
            seen["read", pipeline.pipeline] = pipeline.records
            for name, source in pipeline.sources.items():
                if source.get("phase") == "copy":
                    seen["copied", f"{pipeline.pipeline}/{name}"] = float(source.get("copied", 0))
            for name, sink in pipeline.sinks.items():
                seen["writer lag", f"{pipeline.pipeline}/{name}"] = float(sink.get("lag", 0))
                seen["written", f"{pipeline.pipeline}/{name}"] = float(sink.get("rows", 0))
        seen["appended", ""] = sum(one.appended for one in look.topics)
        for gone in self._series.keys() - seen.keys():
            del self._series[gone]
        for key, value in seen.items():
            self._series[key].append((look.at, value))

    # -- over time
    def points(self, what: str, of: str) -> list[tuple[float, float]]:
        """Return the values of a gauge, oldest first."""
        return list(self._series.get((what, of), ()))

    def rates(self, what: str, of: str) -> list[tuple[float, float]]:
        """Return how fast a counter grew between looks, oldest first."""
        points = self.points(what, of)
        return [(b[0], max(0.0, (b[1] - a[1]) / (b[0] - a[0]))) for a, b in _pairs(points) if b[0] > a[0]]

    def rate(self, what: str, of: str) -> float | None:
        """Return how fast a counter grows now; None if that is not known yet."""
        points = self.points(what, of)
        recent = [one for one in points if one[0] >= points[-1][0] - RATE_SECONDS] if points else []
        if len(recent) < 2:
            recent = points[-2:]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return None
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))


def _pairs(points: list[tuple[float, float]]) -> Iterable[tuple[tuple[float, float], tuple[float, float]]]:
    return pairwise(points)
