"""The open home of a server: open, and opened again when it was away; with the threads, producers and lenders that
requests share."""

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
"""How long a topic's description is used without a look whether it has changed."""
MOST_TOPICS = 10_000
LEND_GRACE = 1.0
"""Seconds that acknowledgements of messages on loan are waited for when the server ends."""
P = ParamSpec("P")
T = TypeVar("T")


class OpenHome:
    """One home, and what its requests share.  Used on one event loop."""

    def __init__(
        self,
        url: str,
        gate: Gate,
        limits: Limits | None = None,
        doctor: Callable[[str], Iterable[Any]] = lambda url: (),
    ) -> None:
        self.url, self.gate, self.limits, self.doctor = url, gate, limits or Limits(), doctor
        self.streams = OpenStreams(self.limits)
        self.actions, self.jobs = Actions(), Jobs()
        self._lock = threading.Lock()
        self._folder = homes.folder_of(url)
        self.home: Home
        self._open()

    def _open(self) -> None:
        self.home = homes.open(self.url)
        self._mark = self._database()
        self.producers, self.tails = Producers(self.home), Tails(self.home.store, self.limits.poll_seconds)
        self._lenders: dict[str, Lender] = {}
        self._topics: OrderedDict[str, tuple[Topic, float]] = OrderedDict()

    # -- being there
    def check_home(self) -> None:
        """`Unavailable` while the home's folder is gone: what is written to a removed file is written nowhere.

        A folder that is there again, the same or another, is opened again, and so is a home that was closed because
        its storage had failed for good."""
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

    def _database(self) -> tuple[int, int] | None:
        """Which file the database is; None if there is none."""
        if self._folder is None:
            return None
        try:
            found = os.stat(self._folder / homes.DATABASE)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # -- blocking work
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that blocks, in one of the server's threads.

        A home that is broken for good is closed, so that the next request opens it again."""
        try:
            return await asyncio.to_thread(partial(function, *args, **kwargs))
        except Broken:
            self.home.close()
            raise
        except Closed as error:
            raise Unavailable(f"the home was just opened again ({error}); ask again") from error

    # -- topics
    async def topic(self, name: str) -> Topic:
        """The topic of this name, as it was at most a second ago."""
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
        """A topic has changed, or is gone."""
        self._topics.pop(topic, None)

    # -- queues
    async def lender(self, queue: str) -> Lender:
        """The lender of a queue; it is made by the first take, and leaves by itself when it is not used for a while."""
        found = self._lenders.get(queue)
        if found is None or not found.running:
            opened = self.home.queue(queue)
            fresh = await self.run(partial(Lender, opened))
            found = self._lenders.get(queue)
            if found is not None and found.running:  # another request was first
                await self.run(fresh.shutdown)
            else:
                found = self._lenders[queue] = fresh
        return found

    def lender_if_any(self, queue: str) -> Lender | None:
        """The lender of a queue, if one runs."""
        found = self._lenders.get(queue)
        return found if found is not None and found.running else None

    async def close(self) -> None:
        """Give everything back, and close the home."""
        self.tails.close()
        with suppress(TailraceError):
            await self.producers.close()
        for lender in self._lenders.values():
            with suppress(TailraceError):
                await asyncio.to_thread(lender.shutdown, LEND_GRACE)
        await asyncio.to_thread(self.home.close)
