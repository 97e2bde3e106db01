"""Watching a topic: callbacks after appends, and records as they come."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailrace.coordination.watch import Wait, block, watch
from tailrace.errors import Broken, Closed, StorageError, UnknownTopic
from tailrace.log.read.reader import Reader
from tailrace.log.record import Record
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Store

SECONDS_BETWEEN_CALLBACKS = 0.2
"""Seconds between two calls of an `on_append` callback, so that one call reports appends in quick succession."""

_log = logging.getLogger("tailrace")


class Notifier:
    """Calls a function from its own thread when records were appended, until it is closed: once for one append, less
    often for many in quick succession, and always after the last one."""

    def __init__(self, store: Store, log: TopicLog, callback: Callable[[Mapping[int, int]], object]) -> None:
        self._store, self._head, self._callback = store, log.head, callback
        self._event, self._closing = threading.Event(), threading.Event()
        watched = watch(store)
        self._stop, self._wait = watched.listen(log.id, self._event.set), Wait(watched, self._event)
        self._reported = store.run(log.head()).next
        self._thread = threading.Thread(target=self._run, name=f"tailrace-watch-{log.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        found = False
        while not self._closing.is_set():
            try:
                self._wait.begin(found)
                if not (found := self._look()):
                    block(self._wait, self._event)
                    continue
            except (UnknownTopic, Closed, Broken) as gone:
                _log.warning("on_append ends: %s", gone)
                return
            except StorageError:
                found = False
            self._closing.wait(SECONDS_BETWEEN_CALLBACKS)

    def _look(self) -> bool:
        ends = self._store.run(self._head()).next
        if ends == self._reported:
            return False
        self._reported = ends
        try:
            self._callback(ends)
        except Exception:
            _log.exception("an on_append callback failed; it is called for the next append all the same")
        return True

    def close(self) -> None:
        """End the calls to the callback; returns when the last one has ended."""
        self._closing.set()
        self._event.set()
        self._stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class TopicFollower(Iterator[Record]):
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
        """End the iteration, also for a thread that is waiting for the next record."""
        self._stopped = True
        self._leave()
        self._event.set()

    def __enter__(self) -> TopicFollower:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
