"""What a log under test must be able to do, and how one is started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.load import Load

Pair = tuple[bytes, bytes]


class Log(Protocol):
    """A log with one topic, connected and ready; used from one thread unless a method says otherwise."""

    def append(self, load: Load) -> int:
        """Append the load in the fastest way the client has; answer how many records were acknowledged."""

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """Append records one by one, each waited for, by `at_once` appenders; answer the seconds each took."""

    def read(self) -> tuple[int, int]:
        """Read the topic from its beginning in the fastest way; answer its records and the bytes of their values."""

    def pairs(self) -> Iterable[Pair]:
        """Every record of the topic, to compare with what was appended."""

    def count(self) -> int:
        """How many records the log itself says it holds."""


@dataclass(frozen=True)
class Place:
    """Where a log is: a server's address or a folder, and the server's pid if there is one."""

    address: str
    pid: int | None = None


@dataclass(frozen=True)
class Contestant:
    """A log that takes part: `serve` starts its server on a folder, `connect` opens a client in any process.

    `promise` says what an acknowledgement means; `bulk`, `single` and `reader` how each is done.
    A `peer` is another log that promises as much when it acknowledges."""

    name: str
    promise: str
    bulk: str
    single: str
    reader: str
    serve: Callable[[Path], AbstractContextManager[Place]]
    connect: Callable[[str], AbstractContextManager[Log]]
    peer: bool = False

    @contextlib.contextmanager
    def open(self, folder: Path) -> Iterator[Log]:
        """The log, served and connected from this process."""
        with self.serve(folder) as place, self.connect(place.address) as log:
            yield log


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[Place]:
    """The `serve` of a log without a server."""
    yield Place(str(folder))


def timed_each(append_one: Callable[[bytes, bytes], object], pairs: Sequence[Pair], at_once: int) -> list[float]:
    """`append_each` of a log whose client may be called from any thread."""
    if at_once == 1:
        return _clock(append_one, pairs)
    with ThreadPoolExecutor(at_once) as pool:
        parts = pool.map(lambda start: _clock(append_one, pairs[start::at_once]), range(at_once))
        return [seconds for part in parts for seconds in part]


def _clock(append_one: Callable[[bytes, bytes], object], pairs: Sequence[Pair]) -> list[float]:
    seconds = []
    for key, value in pairs:
        start = time.perf_counter()
        append_one(key, value)
        seconds.append(time.perf_counter() - start)
    return seconds
