"""What a queue under test must be able to do, and how one is started."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.contract import Place

SIZE = 1024
"""Bytes of a message."""
Got = Callable[[Sequence[bytes]], bool]
"""What a consumer does with messages before it acknowledges them; whether these were the last.  Called with none while
there are none, so that every consumer hears of the end."""


class Queue(Protocol):
    """One queue, connected and ready; used from one thread."""

    def push(self, message: bytes) -> None:
        """Push a message; it is durable when this returns."""

    def push_many(self, messages: Sequence[bytes]) -> None:
        """Push messages together, in the fastest way there is; they are durable when this returns."""

    def take(self, batch: int, got: Got) -> None:
        """Take up to `batch` messages at a time and acknowledge them when `got` has returned, until it says True.

        Waits for messages if there are none; returns when the last acknowledgement is durable, or cannot be more so."""


@dataclass(frozen=True)
class Contestant:
    """A queue that takes part: `serve` starts its server on a folder, `connect` opens a client in any process.

    `promise` says what an acknowledgement means, `how` how messages are pushed and taken."""

    name: str
    promise: str
    how: str
    serve: Callable[[Path], AbstractContextManager[Place]]
    connect: Callable[[str], AbstractContextManager[Queue]]
    peer: bool = True

    @contextlib.contextmanager
    def open(self, folder: Path) -> Iterator[tuple[Place, Queue]]:
        """The queue, served and connected from this process."""
        with self.serve(folder) as place, self.connect(place.address) as queue:
            yield place, queue
