"""Watching for appends: who waits at the end of a topic is woken, and asks storage little while nothing happens.

Appends by this process are told at once.  What other processes do shows in the table's `data_version`, where it has
one (SQLite), else it is looked for with pauses that grow to a second.  A wake-up is a hint: look at the head.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from tailrace.errors import Closed, StorageError, UnknownTopic
from tailrace.log.append import Log
from tailrace.log.reader import Reader
from tailrace.log.record import Record
from tailrace.storage.calls import Store

SHORTEST, LONGEST = 0.005, 1.0
"""Seconds between looks at a topic's end."""

SLICE = 0.02
"""Seconds between looks at a table's version, which costs next to nothing."""

BETWEEN = 0.2
"""Seconds between two calls of an `on_append` callback, so that quick appends are told together."""

_log = logging.getLogger("tailrace")
_watches: weakref.WeakKeyDictionary[Any, Watch] = weakref.WeakKeyDictionary()
_watches_lock = threading.Lock()


def watch(store: Store) -> Watch:
    """The watch of a store: one for all who use its table in this process."""
    with _watches_lock:
        if store.table not in _watches:
            _watches[store.table] = Watch(getattr(store.table, "data_version", None))
        return _watches[store.table]


class Event(Protocol):
    """What threading.Event and asyncio.Event have in common."""

    def set(self) -> None:
        """Wake who waits."""

    def clear(self) -> None:
        """Wait from now on."""


class Watch:
    """Who wants to hear of appends, by topic id.  Safe from any thread."""

    def __init__(self, version: Callable[[], int] | None = None) -> None:
        # A bound method would keep its table, and so this watch, for ever.
        self._version = weakref.WeakMethod(version) if version is not None else None
        self._listeners: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()

    def signal(self, topic_id: str) -> None:
        """Something was appended here."""
        for listener in self._listeners.get(topic_id, ()):
            listener()

    def listen(self, topic_id: str, listener: Callable[[], object]) -> Callable[[], None]:
        """Have a listener called after each append here, by whichever thread; gives the way to stop that."""
        with self._lock:
            self._listeners[topic_id] = [*self._listeners.get(topic_id, ()), listener]
        return lambda: self._leave(topic_id, listener)

    def _leave(self, topic_id: str, listener: Callable[[], object]) -> None:
        with self._lock:
            left = [other for other in self._listeners.get(topic_id, ()) if other is not listener]
            self._listeners[topic_id] = left

    def version(self) -> int | None:
        """A number that is another one after anybody has written; None where the table has none."""
        version = self._version() if self._version is not None else None
        return version() if version is not None else None


class Wait:
    """How one who has read all there was waits for more.

    wait.begin()                         # before looking
    if nothing was found:
        for seconds in wait.pauses():    # until it is time to look again
            if event.wait(seconds):
                break
    """

    def __init__(self, watch: Watch, event: Event) -> None:
        self._watch, self._event = watch, event
        self._pause, self._seen = SHORTEST, watch.version()

    def begin(self, found: bool = False) -> None:
        """A look begins, after one that has or has not found something; what happens from now on ends the next wait."""
        self._event.clear()
        self._seen = self._watch.version()
        self._pause = SHORTEST if found else self._pause

    def pauses(self) -> Iterator[float]:
        """Seconds to wait for the event, again and again, until it is time to look."""
        if self._seen is None:
            yield self._pause
            self._pause = min(LONGEST, 2 * self._pause)
            return
        waited = 0.0
        while waited < LONGEST and self._watch.version() == self._seen:
            yield SLICE
            waited += SLICE


def block(wait: Wait, event: threading.Event) -> None:
    """Wait in this thread until it is time to look."""
    for seconds in wait.pauses():
        if event.wait(seconds):
            return


class Notifier:
    """Calls back when records were appended, from a thread of its own, until it is closed.

    One append: one call.  Many quick ones: fewer calls, the last of them after the last append."""

    def __init__(self, store: Store, log: Log, callback: Callable[[Mapping[int, int]], object]) -> None:
        self._store, self._head, self._callback = store, log.head, callback
        self._event, self._closing = threading.Event(), threading.Event()
        watched = watch(store)
        self._stop, self._wait = watched.listen(log.id, self._event.set), Wait(watched, self._event)
        self._told = store.run(log.head()).next
        self._thread = threading.Thread(target=self._run, name=f"tailrace-watch-{log.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        found = False
        while not self._closing.is_set():
            self._wait.begin(found)
            try:
                found = self._look()
            except StorageError:
                found = False
            except (UnknownTopic, Closed) as gone:
                _log.warning("on_append ends: %s", gone)
                return
            if found:
                self._closing.wait(BETWEEN)
            else:
                block(self._wait, self._event)

    def _look(self) -> bool:
        ends = self._store.run(self._head()).next
        if ends == self._told:
            return False
        self._told = ends
        try:
            self._callback(ends)
        except Exception:
            _log.exception("an on_append callback failed; the next append is told all the same")
        return True

    def close(self) -> None:
        """No more calls; returns when the last has ended."""
        self._closing.set()
        self._event.set()
        self._stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Following(Iterator[Record]):
    """Records as they come, waiting at the end for more; `stop`, from any thread, ends it."""

    def __init__(self, store: Store, reader: Reader, records: Callable[[Any], Iterator[Record]]) -> None:
        self._store, self._reader, self._records = store, reader, records
        self._event, self._stopped, self._found = threading.Event(), False, False
        watched = watch(store)
        self._leave, self._wait = watched.listen(reader.log.id, self._event.set), Wait(watched, self._event)
        self._ready: Iterator[Record] = iter(())

    def __next__(self) -> Record:
        while not self._stopped:
            for record in self._ready:
                return record
            self._look()
        raise StopIteration

    def _look(self) -> None:
        self._wait.begin(self._found)
        fetched = self._store.run(self._reader.poll())
        self._found = bool(fetched)
        self._ready = (record for one in fetched for record in self._records(one))
        if not fetched and not self._stopped:
            block(self._wait, self._event)

    def stop(self) -> None:
        """End it: whoever waits for the next record gets no more."""
        self._stopped = True
        self._leave()
        self._event.set()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
