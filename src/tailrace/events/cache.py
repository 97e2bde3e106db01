"""Cache: folded states, and how old a state a caller accepts."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tailrace.errors import BadSetting
from tailrace.events.tip import Tip


@dataclass(frozen=True, slots=True)
class RequireLatest:
    """Read the stream's Tip; the cached state saves reading the earlier events."""


@dataclass(frozen=True, slots=True)
class AnyCachedValue:
    """Take the cached state, however old it is; a decision on a stale state ends in a conflict and is made again."""


@dataclass(frozen=True, slots=True)
class AllowStale:
    """Take the cached state if it was the latest one at most `seconds` ago."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AssumeEmpty:
    """Read nothing and assume that the stream does not exist; if it does, the write ends in a conflict."""


Load: TypeAlias = RequireLatest | AnyCachedValue | AllowStale | AssumeEmpty


class Cached(NamedTuple):
    """A state, the Tip up to which it was folded, and when that Tip was the latest."""

    tip: Tip
    state: Any
    at: float


class Cache:
    """States of the streams that were used last.  Any thread may use it; states in it must not be changed."""

    def __init__(self, max_entries: int = 10_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
            raise BadSetting(f"a cache has at least one entry, not {max_entries!r}")
        self._max, self._clock = max_entries, clock
        self._entries: OrderedDict[Hashable, Cached] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, load: Load) -> Cached | None:
        """The cached state; `fresh` says whether the caller can take it as it is."""
        if isinstance(load, AssumeEmpty):
            return None
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def fresh(self, cached: Cached, load: Load) -> bool:
        """Whether the caller can take a state without reading the stream."""
        if isinstance(load, AllowStale):
            return self._clock() - cached.at <= load.seconds
        return isinstance(load, AnyCachedValue)

    def put(self, key: Hashable, tip: Tip, state: Any) -> None:
        """Keep a state, unless a later one is cached."""
        with self._lock:
            found = self._entries.get(key)
            if found is None or found.tip.version <= tip.version:
                self._entries[key] = Cached(tip, state, self._clock())
                self._entries.move_to_end(key)
            if len(self._entries) > self._max:
                self._entries.popitem(last=False)
