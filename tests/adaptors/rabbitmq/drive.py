"""A stand-in for the runner: follows every split in one thread, keeps what comes, and acknowledges what is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.rabbitmq.source.reader import RabbitReader
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tests.adaptors.rabbitmq.place import PATIENCE, Place


class Drive:
    """A pipeline from what the settings name into memory."""

    def __init__(self, place: Place, **settings: Any) -> None:
        self._place, self._settings = place, settings
        self.position: Any = None
        self.messages: list[Message] = []
        self.ended: list[str] = []
        self.caught_up = False
        self._readers: dict[str, RabbitReader] = {}
        self._following: dict[str, Iterator[Changes]] = {}

    def begin(self) -> Drive:
        """Fix the position."""
        reader = self._place.reader(**self._settings)
        self.position = _kept(reader.begin([one.name for one in reader.namespaces()]))
        reader.close()
        return self

    def _open(self) -> None:
        planner = self._place.reader(**self._settings)
        names = [one.name for one in planner.namespaces()]
        for split in planner.splits(self.position):
            reader = self._readers[split] = self._place.reader(**self._settings)
            self._following[split] = reader.follow(self.position["splits"][split], names, split)
        planner.close()

    def step(self, *, keep: bool = True) -> list[Message]:
        """The next changes of every split; not to `keep` the position is to crash before they are stored."""
        if not self._following:
            self._open()
        found: list[Message] = []
        caught_up = []
        for split, changes in self._following.items():
            one = next(changes)
            found += [message for batch in one.rows for message in messages_of(batch)]
            self.ended += one.ended
            caught_up.append(one.caught_up)
            if keep:
                self.position["splits"][split] = _kept(one.position)
                self._readers[split].acknowledge(self.position["splits"][split])
        self.messages += found
        self.caught_up = all(caught_up)
        return found

    def until(self, enough: Callable[[], bool], *, keep: bool = True) -> list[Message]:
        """Go on until it is enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"only {len(self.messages)} messages: {self.messages[-3:]}"
            self.step(keep=keep)
        return self.messages

    def count(self, many: int, *, keep: bool = True) -> list[Message]:
        """Go on until so many have come."""
        return self.until(lambda: len(self.messages) >= many, keep=keep)

    def catch_up(self) -> list[Message]:
        """Go on, by new readers, to where all is now."""
        self.stop()
        self.caught_up = False
        return self.until(lambda: self.caught_up)

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
