"""Watching: a reader that has read everything waits, wakes up when there is more, and hardly reads storage meanwhile.

Writes of this process wake it at once, by topic.  Writes of other processes show in the table's `data_version`, where
it has one (SQLite); else the reader looks again after pauses that grow to a second.  A wake-up is only a hint to look.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tailrace.storage.calls import Store

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.005, 1.0
"""Seconds between looks at a topic's end."""

VERSION_CHECK_SECONDS = 0.02
"""Seconds between looks at a table's version, which costs next to nothing."""

_watches: weakref.WeakKeyDictionary[Any, Watch] = weakref.WeakKeyDictionary()
_watches_lock = threading.Lock()


def watch(store: Store) -> Watch:
    """The watch of a store, shared by all users of its table in this process."""
    with _watches_lock:
        if store.table not in _watches:
            _watches[store.table] = Watch(_version_of(store.table))
        return _watches[store.table]


def _version_of(table: Any) -> Callable[[], int | None] | None:
    """A function that asks a table for its version without keeping a reference to it: else the table, and so its watch,
    would live for ever."""
    if not hasattr(table, "data_version"):
        return None
    known = weakref.ref(table)

    def version() -> int | None:
        now: Any = known()
        return None if now is None else now.data_version()

    return version


class Signal(Protocol):
    """The methods that threading.Event and asyncio.Event have in common."""

    def set(self) -> None:
        """Wake the waiting readers."""

    def clear(self) -> None:
        """Make the next `wait` block."""


class Watch:
    """The listeners for appends, by topic id.  Safe from any thread."""

    def __init__(self, version: Callable[[], int | None] | None = None) -> None:
        self._version = version
        self._listeners: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()

    def signal(self, topic_id: str) -> None:
        """Call the listeners: this process has appended something."""
        for listener in self._listeners.get(topic_id, ()):
            listener()

    def listen(self, topic_id: str, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a listener after each append in this process, from the appending thread; returns a function that ends
        this."""
        with self._lock:
            self._listeners[topic_id] = [*self._listeners.get(topic_id, ()), listener]
        return lambda: self._leave(topic_id, listener)

    def _leave(self, topic_id: str, listener: Callable[[], object]) -> None:
        with self._lock:
            left = [other for other in self._listeners.get(topic_id, ()) if other is not listener]
            self._listeners[topic_id] = left

    def version(self) -> int | None:
        """A number that changes whenever any process has written; None where the table has none."""
        return self._version() if self._version is not None else None


class Wait:
    """How a reader that has read everything waits for more.

    wait.begin()                         # before looking
    if nothing was found:
        for seconds in wait.pauses():    # until it is time to look again
            if event.wait(seconds):
                break
    """

    def __init__(self, watch: Watch, event: Signal) -> None:
        self._watch, self._event = watch, event
        self._pause, self._seen = MIN_POLL_SECONDS, watch.version()

    def begin(self, found: bool = False) -> None:
        """Begin a look; `found` says whether the last one found something.  An append from now on ends the next
        wait."""
        self._event.clear()
        self._seen = self._watch.version()
        self._pause = MIN_POLL_SECONDS if found else self._pause

    def pauses(self) -> Iterator[float]:
        """Yields how many seconds to wait for the event, again and again, until it is time to look."""
        if self._seen is None:
            yield self._pause
            self._pause = min(MAX_POLL_SECONDS, 2 * self._pause)
            return
        waited = 0.0
        while waited < MAX_POLL_SECONDS and self._watch.version() == self._seen:
            yield VERSION_CHECK_SECONDS
            waited += VERSION_CHECK_SECONDS


def block(wait: Wait, event: threading.Event) -> None:
    """Wait in this thread until it is time to look."""
    for seconds in wait.pauses():
        if event.wait(seconds):
            return
