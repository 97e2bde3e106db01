"""A stand-in for the runner: follows every split in one thread, and keeps what comes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.kafka.source.reader import KafkaReader
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tests.adaptors.kafka.place import PATIENCE, Place


class Drive:
    """A pipeline from some topics into memory."""

    def __init__(
        self, place: Place, namespaces: Sequence[str], wanted: Callable[[str], bool] = bool, **settings: Any
    ) -> None:
        self._place, self._settings, self._wanted = place, settings, wanted
        self.namespaces = list(namespaces)
        self.position: Any = None
        self.messages: list[Message] = []
        self.batches: list[pa.RecordBatch] = []
        self.splits: list[str] = []
        """The split that each of them came from."""
        self.ended: list[str] = []
        self._readers: dict[str, KafkaReader] = {}
        self._following: dict[str, Iterator[Changes]] = {}

    def begin(self) -> Drive:
        """Fix the position."""
        reader = self._place.reader(**self._settings)
        self.position = _kept(reader.begin(self.namespaces))
        reader.close()
        return self

    def _open(self) -> None:
        planner = self._place.reader(**self._settings)
        for split in planner.splits(self.position):
            reader = self._readers[split] = self._place.reader(**self._settings)
            self._following[split] = reader.follow(self.position["splits"][split], self.namespaces, split)
        planner.close()

    def step(self) -> bool:
        """The next changes of every split; whether all of these say that they have caught up."""
        if not self._following:
            self._open()
        caught_up = []
        for split, changes in self._following.items():
            one = next(changes)
            found = [message for batch in one.rows for message in messages_of(batch)]
            self.messages += found
            self.batches += one.rows
            self.splits += [split] * len(found)
            self.namespaces += [n for n in one.appeared if self._wanted(n) and n not in self.namespaces]
            self.ended += one.ended
            self.position["splits"][split] = _kept(one.position)
            self._readers[split].acknowledge(self.position["splits"][split])
            caught_up.append(one.caught_up)
        return all(caught_up)

    def until(self, enough: Callable[[], bool]) -> list[Message]:
        """Go on until it is enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"only {len(self.messages)} messages: {self.messages[-3:]}"
            self.step()
        return self.messages

    def count(self, many: int) -> list[Message]:
        """Go on until so many have come."""
        return self.until(lambda: len(self.messages) >= many)

    def catch_up(self) -> list[Message]:
        """Go on to where the topics are now."""
        self.stop()
        self.until(self.step)
        return self.messages

    def stop(self) -> None:
        """Give up the readers, as a crash does; the position stays."""
        for reader in self._readers.values():
            reader.close()
        self._readers, self._following = {}, {}

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _kept(value: Any) -> Any:
    return json.loads(json.dumps(value))
