"""The open home of a server, with the producers, followers and lenders that requests share.  The server opens the home
again after its database was replaced or its storage has failed for good."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tailrace import home as homes
from tailrace.console.audit import Actions
from tailrace.console.commit_times import CommitTimes
from tailrace.console.jobs import Jobs
from tailrace.console.limits import Limits, OpenStreams
from tailrace.console.producers import Producers
from tailrace.console.security import Gate
from tailrace.console.tails import Tails
from tailrace.errors import Broken, Closed, TailraceError, Unavailable
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.queue.lending import Lender

TOPIC_SECONDS = 1.0
"""How long a topic's description is used before it is read again."""
MOST_TOPICS = 10_000
"""Topics whose descriptions the server keeps; beyond that it forgets the one that was used longest ago."""
LEND_GRACE = 1.0
"""Seconds that a stopping server waits for the acknowledgements of leased messages to be stored."""
P = ParamSpec("P")
T = TypeVar("T")


class OpenHome:
    """One home, and what its requests share.  To be used on one event loop."""

    def __init__(
        self,
        url: str,
        gate: Gate,
        limits: Limits | None = None,
        doctor: Callable[[str], Iterable[Any]] = lambda url: (),
    ) -> None:
        self.url, self.gate, self.limits, self.doctor = url, gate, limits or Limits(), doctor
        self.streams = OpenStreams(self.limits)
        self.actions, self.jobs, self.commit_times = Actions(), Jobs(), CommitTimes()
        self._lock = threading.Lock()
        self._asking = asyncio.Lock()
        self._folder = homes.folder_of(url)
        self.home: Home
        self._open()

    def _open(self) -> None:
        self.home = homes.open(self.url)
        self._mark = self._database()
        self._answered = float("-inf")
        """When the storage last answered `check_storage`."""
        self.producers, self.tails = Producers(self.home), Tails(self.home.store, self.limits.poll_seconds)
        self._lenders: dict[str, Lender] = {}
        self._topics: OrderedDict[str, tuple[Topic, float]] = OrderedDict()

    # -- whether the home is there
    def check_home(self) -> None:
        """Open the home again if its database file was replaced, or if it was closed because its storage had failed for
        good; raise `Unavailable` while the file is gone.

        Without this check the server would write to a removed file, and lose what it writes."""
        now = self._database()
        if now == self._mark and not self.home._closed:
            return
        if now is None and self._folder is not None:
            raise Unavailable(f"the home {self.home.url} is gone from the disk; put it back, and this goes on")
        with self._lock:
            if self._mark != now or self.home._closed:
                with suppress(TailraceError, OSError):
                    self.home.close()
                self._open()

    async def check_storage(self) -> None:
        """Ask the storage whether it answers, at most once in `poll_seconds`; raise what a request would get."""
        self.check_home()
        async with self._asking:
            if self._answered > time.monotonic() - self.limits.poll_seconds:
                return
            await self.run(self.home.topics)
            self._answered = time.monotonic()

    def _database(self) -> tuple[int, int] | None:
        """Return the device and inode of the home's database file; None if there is no file."""
        if self._folder is None:
            return None
        try:
            found = os.stat(self._folder / homes.DATABASE)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # -- blocking work
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks in one of the server's threads, and return its result.

        If the storage has failed for good, the home is closed, so that the next request opens it again."""
        try:
            return await asyncio.to_thread(partial(function, *args, **kwargs))
        except Broken:
            self.home.close()
            raise
        except Closed as error:
            raise Unavailable(f"the home was just opened again ({error}); ask again") from error

    # -- topics
    async def topic(self, name: str) -> Topic:
        """Return the topic of this name, with its description as it was at most TOPIC_SECONDS ago."""
        found = self._topics.get(name)
        if found is not None and found[1] > time.monotonic():
            return found[0]
        topic = await self.run(self.home.topic, name)
        known = found[0] if found is not None and found[0].described == topic.described else topic
        self._topics[name] = known, time.monotonic() + TOPIC_SECONDS
        self._topics.move_to_end(name)
        while len(self._topics) > MOST_TOPICS:
            self._topics.popitem(last=False)
        return known

    def forget(self, topic: str) -> None:
        """Forget the description of a topic that was changed or deleted."""
        self._topics.pop(topic, None)

    # -- queues
    async def lender(self, queue: str) -> Lender:
        """Return the lender of a queue.  The first take starts it; it ends by itself when no client has used it for a
        while."""
        found = self._lenders.get(queue)
        if found is None or not found.running:
            opened = self.home.queue(queue)
            fresh = await self.run(partial(Lender, opened))
            found = self._lenders.get(queue)
            if found is not None and found.running:  # another request has started one meanwhile
                await self.run(fresh.shutdown)
            else:
                found = self._lenders[queue] = fresh
        return found

    def lender_if_any(self, queue: str) -> Lender | None:
        """Return the lender of a queue, or None if none runs."""
        found = self._lenders.get(queue)
        return found if found is not None and found.running else None

    async def close(self) -> None:
        """Stop the tails, commit what the producers have, end the lenders, and close the home."""
        self.tails.close()
        with suppress(TailraceError):
            await self.producers.close()
        for lender in self._lenders.values():
            with suppress(TailraceError):
                await asyncio.to_thread(lender.shutdown, LEND_GRACE)
        await asyncio.to_thread(self.home.close)
