"""Home: an open home, with the methods that open its topics, queues, events and tables."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadSetting, Closed, UnknownQueue
from tailrace.home.home_item import open_home_item
from tailrace.home.store import store_of
from tailrace.home.url import DEFAULT, shown
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.settings import FIXED
from tailrace.log.settings import settings as check_settings
from tailrace.storage.calls import Store

if TYPE_CHECKING:
    from tailrace.admin.copy import Copied
    from tailrace.admin.report import Report
    from tailrace.feed.indexing import Indexing
    from tailrace.feed.store import FedEvents
    from tailrace.log.topic import Topic
    from tailrace.log.upkeep.scheduler import BackgroundUpkeep, HomeUpkeep
    from tailrace.log.upkeep.topic_upkeep import UpkeepResult
    from tailrace.queue.envelope import Codec
    from tailrace.queue.queue import Queue
    from tailrace.queue.transaction import Transaction
    from tailrace.stream_copy import StreamCopy
    from tailrace.streams.engine import Engine
    from tailrace.streams.stream import Start


class Home:
    """An open home.  Close it, or use it in a `with` block; any thread may use its topics."""

    def __init__(self, url: str, store: Store) -> None:
        self.url, self.store = url, store
        self._closed = False
        self._keeping: list[BackgroundUpkeep] = []
        self._archives: dict[str, Home] = {}
        self._indexing: Indexing | None = None
        self._lock = threading.Lock()
        self.id: str = store.run(open_home_item(url))["id"]

    def __repr__(self) -> str:
        return f"Home({self.url!r})"

    # -- topics
    def topic(self, name: str, partitions: int | None = None, **settings: Any) -> Topic:
        """Open the topic of this name.  With `partitions` it is created if it is missing; `BadSetting` if it exists
        with other settings or another number of partitions."""
        self._check_open()
        if partitions is None and not settings:
            return self._topic(self.store.run(catalog.describe(name)))
        if partitions is None:
            raise BadSetting(
                "settings are given when a topic is made, with partitions=…; topic.configure() changes them"
            )
        check_settings(settings)
        described = self.store.run(catalog.find(name))
        if described is None:
            try:
                return self.create_topic(name, partitions, **settings)
            except AlreadyThere:  # made by another process just now
                described = self.store.run(catalog.describe(name))
        if described.partitions != catalog.check_partitions(partitions):
            more = described.partitions < partitions
            hint = f"`tailrace topic grow {name} {partitions}` adds some" if more else "it cannot have fewer"
            raise BadSetting(
                f"topic {name!r} has {described.partitions} partitions, not {partitions}; {hint}, or open it without a "
                "count"
            )
        _check_same(described, settings)
        return self._topic(described)

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> Topic:
        """Create a topic; `AlreadyThere` if a topic of this name exists."""
        self._check_open()
        wall = int(time.time() * 1000)
        return self._topic(self.store.run(catalog.create(name, partitions, settings, wall)))

    def _topic(self, described: Described) -> Topic:
        from tailrace.log.topic import Topic  # loads Arrow, which takes longer than all of `tailrace topic list`

        return Topic(self.store, described)

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        self._check_open()
        return self.store.run(catalog.listing("$Topics"))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it.  From then on no process finds it; if this call is interrupted, the next
        deletion or upkeep removes the rest."""
        from tailrace.log.groups.group import purge, refuse_topic_of_queue

        self._check_open()
        self.store.run(refuse_topic_of_queue(name))
        self.store.run(catalog.delete(name))
        self.store.run(purge())

    def transaction(self, *topics: str | Topic) -> Transaction:
        """A transaction that stores records, queue messages and events together, or none of them.

        `with home.transaction("a", "b") as t`: t.send, t.push, t.append.  Topics may also be named when sending."""
        from tailrace.queue.transaction import Transaction

        self._check_open()
        chosen = [self.topic(t) if isinstance(t, str) else t for t in topics]
        return Transaction(self.store, {t.name: (t.log, t.described) for t in chosen}, self.queue, self.topic)

    # -- queues
    def queue(
        self,
        name: str,
        shards: int | None = None,
        *,
        codec: Codec | None = None,
        pusher: str | None = None,
        create: bool = True,
        **settings: Any,
    ) -> Queue:
        """Open the queue of this name.  The first push or consumer creates it, or this call if it gets `shards` or
        settings.  With `create=False` each of them raises `UnknownQueue` if the queue is not there.

        Messages are bytes, or objects through a codec (JSON by default); see `queue.settings.Settings`.  `pusher` is a
        name that is stored with every message pushed here and that `explain` shows."""
        from tailrace.queue.queue import Queue
        from tailrace.queue.transaction import AckTransaction

        self._check_open()

        def new_transaction() -> AckTransaction:
            return AckTransaction(self.store, {}, self.queue, self.topic)

        queue = Queue(self.store, name, codec=codec, pusher=pusher, create=create, new_transaction=new_transaction)
        if shards is not None or settings:
            queue.make(shards, **settings)
        return queue

    def queues(self) -> list[str]:
        """The names of all queues, in order."""
        from tailrace.queue.queue import names

        self._check_open()
        return names(self.store)

    # -- events
    def events(self, *, archive: Home | str | os.PathLike[str] | None = None, **settings: Any) -> FedEvents:
        """The event store of this home: `home.events().stream("Cart-42")`.  See `Events` for the settings.

        `archive` is another home, open or by its URL, to which `prune` moves events; one that is opened here by its URL
        is closed with this home."""
        from tailrace.feed.store import FedEvents

        self._check_open()
        table = None if archive is None else self._archive(archive).store.table
        start = self._start_indexing
        return FedEvents(self.store, archive=table, start_indexing=start, embedded=self._indexes_here, **settings)

    def _archive(self, given: Home | str | os.PathLike[str]) -> Home:
        from tailrace.events.archive import mark_archive

        if not isinstance(given, Home | str | os.PathLike):
            raise BadSetting(f"an archive is a home, or the URL of one, not a {type(given).__name__}")
        if isinstance(given, Home):
            home = given
        elif (url := os.fspath(given)) in self._archives:
            home = self._archives[url]
        else:
            home = self._archives[url] = open(url)
        home._check_open()
        if home.id == self.id:
            raise BadSetting(f"{self.url} cannot be its own archive: what is pruned would be gone; name another home")
        home.store.run(mark_archive())
        return home

    def _start_indexing(self) -> Indexing | None:
        """Start the thread that indexes appended events, once; None for a home on S3, where a Lambda indexes."""
        from tailrace.feed.indexing import Indexing

        self._check_open()
        with self._lock:
            if self._indexing is None and self._indexes_here:
                self._indexing = Indexing(self.store)
        return self._indexing

    @property
    def _indexes_here(self) -> bool:
        return not self.url.startswith("s3:")

    # -- models and change streams
    def engine(self) -> Engine:
        """The engine for models, their tables and change streams, stored in the same place as this home's table."""
        from tailrace.streams.engine import embedded

        self._check_open()
        return embedded(self.store)

    def copy_stream(
        self, table: str, topic: str | Topic, start: Start = "trim_horizon", *, restart: bool = False
    ) -> StreamCopy:
        """A `StreamCopy` that copies a table's changes into a topic, each once: `.once()` copies the changes up to now,
        `.follow()` waits for more.

        `start` says where the first copy begins; later ones continue behind the last change, unless `restart`."""
        from tailrace.stream_copy import StreamCopy

        chosen = self.topic(topic) if isinstance(topic, str) else topic
        return StreamCopy(self.store, self.engine(), chosen, table, start, restart=restart)

    # -- the whole
    def scrub(
        self,
        topics: Iterable[str] | None = None,
        *,
        sample: float = 1.0,
        told: Callable[[int], object] = lambda _: None,
    ) -> Report:
        """Read all topics again, or those named, and compare their bytes with the table; changes nothing.

        `sample` is the share of chunks, drawn at random, whose bytes are read.  `told` is called with the size of each
        piece that was read."""
        from tailrace.admin.scrub import scrub

        self._check_open()
        return scrub(self.store, topics, sample=sample, told=told)

    def copy(self, to: str | os.PathLike[str], *, told: Callable[[int], object] = lambda _: None) -> Copied:
        """Copy this home's current state to an empty one, and scrub the copy.  After an interruption, call it again: it
        keeps the objects that are copied already.  `told` is called with the size of each object."""
        from tailrace.admin.copy import copy

        self._check_open()
        url = os.fspath(to)
        target = store_of(url)
        try:
            return copy(self.store, target, self.id, shown(url) if "://" in url else url, told)
        finally:
            if not url.startswith("memory:"):
                target.close()

    # -- upkeep
    def upkeep(
        self,
        *topics: str,
        rate: float | None = None,
        wait: float = 15.0,
        told: Callable[[str, int], None] = lambda topic, bytes: None,
    ) -> list[UpkeepResult]:
        """Run upkeep on these topics, or on all, and on their queues: retention, compaction, merging, cleaning.

        Returns the result for each topic.  `rate` limits the bytes written per second.  `Busy` if another process's
        upkeep takes longer than `wait` seconds.  `told` is called with a topic's name and the bytes written since."""
        self._check_open()
        return self._keeper(rate, told).run(topics, wait=wait)

    def start_upkeep(self, every: float = 3600.0, rate: float | None = None) -> BackgroundUpkeep:
        """Run upkeep on all topics and queues in a background thread, every `every` seconds, until it is stopped or the
        home is closed."""
        from tailrace.log.upkeep.scheduler import BackgroundUpkeep

        self._check_open()
        self._keeping.append(BackgroundUpkeep(self._keeper(rate), every))
        return self._keeping[-1]

    def _keeper(self, rate: float | None, told: Callable[[str, int], None] = lambda topic, bytes: None) -> HomeUpkeep:
        from tailrace.log.upkeep.scheduler import HomeUpkeep, UpkeepPace

        return HomeUpkeep(self.store, UpkeepPace(rate, told), also=self._tend_queue)

    def _tend_queue(self, topic: Described) -> None:
        """Run upkeep of the queue on a topic, if there is one."""
        from tailrace.queue.settings import queue_key

        if self.store.run(guard.read(queue_key(topic.id))) is not None:
            with suppress(UnknownQueue):  # deleted meanwhile
                self.queue(topic.name).upkeep()

    # -- life
    def close(self) -> None:
        """Stop background work and close files and connections.  Acknowledged writes are durable without it, too."""
        if not self._closed:
            self._closed = True
            for background in self._keeping:
                background.stop()
            for archive in self._archives.values():
                archive.close()
            if self._indexing is not None:
                self._indexing.close()
            if not self.url.startswith("memory:"):
                self.store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the home {self.url} is closed")

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open(home: str | os.PathLike[str] = DEFAULT) -> Home:
    """Open a home; creates a local folder that is missing.  See `tailrace.home.url` for the URLs it takes."""
    url = os.fspath(home)
    store = store_of(url)
    if url.startswith("memory:"):
        return Home(url, store)
    return _opened(shown(url) if url.startswith("s3:") else url, store)


def _opened(url: str, store: Store) -> Home:
    try:
        return Home(url, store)
    except BaseException:
        store.close()
        raise


def _check_same(described: Described, settings: Mapping[str, Any]) -> None:
    """Refuse settings that differ from the topic's, since opening a topic must not change it."""
    for name, wanted in settings.items():
        if (has := getattr(described.settings, name)) != wanted:
            if name in FIXED:
                raise BadSetting(f"topic {described.name!r} has {name}={has!r} and keeps it; open it without {name}")
            raise BadSetting(
                f"topic {described.name!r} has {name}={has!r}, not {wanted!r}; open it without settings, or change "
                f"them with topic.configure({name}={wanted!r}) or `tailrace topic set {described.name} {name}={wanted}`"
            )
