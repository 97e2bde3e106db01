"""Following: a receiver for each log of the source, in a thread of the driver, which keeps its connection open.

Receivers decode changes.  One thread, the committer, commits what all of them have read meanwhile, so that a slow disk
makes batches larger rather than delays longer.  Receivers acknowledge to the source only changes that the commit log
has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from threading import Event, Thread
from typing import Any

import msgspec

from tailrace.adaptors.contract import Changes, Reader
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.committer import Committer
from tailrace.pipeline.runtime.status import Status

Copy = Callable[[Changes], None]
"""Copies the namespaces that must be copied according to these changes, before the next changes are read."""


class FollowedNames(Sequence[str]):
    """The current namespaces of a pipeline; changes with the commit log."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def __getitem__(self, at: Any) -> Any:
        return list(self._log.phases)[at]

    def __len__(self) -> int:
        return len(self._log.phases)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._log.phases))

    def __contains__(self, name: object) -> bool:
        return name in self._log.phases


class Receiver:
    """Follows one log of the source until it is stopped, or with `once` until it has caught up."""

    def __init__(
        self, reader: Reader, log: CommitLog, committer: Committer, status: Status, copy: Copy, split: str = ""
    ) -> None:
        self._reader, self._log, self._committer, self._split = reader, log, committer, split
        self._status, self._copy = status, copy

    def follow(self, stop: Event, once: bool) -> None:
        """Follow the log, and hand changes to the committer.  Blocks until it is stopped, the log has ended, or with
        `once` is caught up; the committer may then still have to commit the last changes."""
        committer, split = self._committer, self._split
        for changes in self._reader.follow(committer.done(split), FollowedNames(self._log), split):
            if stop.is_set() or committer.error is not None:
                return
            if (changes.appeared or changes.altered or changes.ended) and not self._found(changes):
                return
            moved = changes.rows or changes.opened or changes.position != committer.done(split)
            if moved or changes.closed:
                committer.put(split, changes)
            elif once and committer.is_idle(split):
                return
            if changes.closed or (once and changes.caught_up):
                return
            self.acknowledge()

    def _found(self, changes: Changes) -> bool:
        """Copy namespaces that appeared or were altered, and complete those that ended, once earlier changes are
        committed; False if the committer has failed."""
        with self._committer.drained(self._split) as drained:
            if not drained:
                return False
            if changes.appeared or changes.altered:
                self._copy(changes)
            for name in self._log.complete_phases(changes.ended) if changes.ended else ():
                self._status.source(name).phase = "complete"
        return True

    def acknowledge(self) -> None:
        """Acknowledge to the source the position that is committed, if there is one."""
        if (done := self._committer.done(self._split)) is not None:
            self._reader.acknowledge(done)


class SourceReceiver:
    """Follows a source from the commit log's position, with one receiver, or one for each split.

    `make` makes another reader of the same source, for a split."""

    def __init__(
        self,
        reader: Reader,
        log: CommitLog,
        status: Status,
        stop: Event,
        copy: Copy,
        make: Callable[[], Reader] | None = None,
    ) -> None:
        self._reader, self._log, self._status, self._stop, self._copy = reader, log, status, stop, copy
        self._make = make
        self._splits = list(reader.splits(log.position))
        self.committer = Committer(log, status, self._splits, keep_last=reader.wants_last)
        self._over = Event()
        """Set to stop the receivers of all splits: when the run stops, or when one of them or the committer fails."""
        self._failure: BaseException | None = None

    def run(self, once: bool = False) -> None:
        """Follow until stopped, or with `once` until caught up.  Blocks; raises the error of a receiver or of the
        committer."""
        if self._reader.wants_last:
            self._reader.resume(_last_messages(self._log))
        self.committer.start()
        receiver = Receiver(self._reader, self._log, self.committer, self._status, self._copy)
        try:
            if self._splits:
                self._follow_splits(once)
            else:
                self._follow(receiver, once)
        finally:
            self.committer.close()
        if self._failure is not None:
            raise self._failure
        if self.committer.error is not None:
            raise self.committer.error
        if not self._splits:
            receiver.acknowledge()

    def _follow(self, receiver: Receiver, once: bool) -> None:
        receiver.follow(self._stop, once)

    # -- several splits
    def _follow_splits(self, once: bool) -> None:
        """Run a thread for each split; a split that opens gets its thread once the changes before it are committed."""
        going: dict[str, Thread] = {}
        ended: set[str] = set()
        while True:
            for split in self.committer.open_splits() - going.keys() - ended:
                name = f"tailrace-follow-{split}"
                going[split] = Thread(target=self._one, args=(split, once), name=name, daemon=True)
                going[split].start()
            for split in [split for split, thread in going.items() if not thread.is_alive()]:
                del going[split]
                ended.add(split)
            if self._stop.is_set() or self.committer.error is not None or self._failure is not None:
                self._over.set()
            waits = self.committer.open_splits() - ended
            if not going and (self._over.is_set() or (self.committer.is_idle() and not waits)):
                return
            time.sleep(0.01)

    def _one(self, split: str, once: bool) -> None:
        assert self._make is not None, "a source with several splits is followed by a reader for each"
        try:
            with closing(self._make()) as reader:
                reader.begun(self._log.position)
                receiver = Receiver(reader, self._log, self.committer, self._status, self._copy, split)
                receiver.follow(self._over, once)
                self.committer.wait(split)
                with suppress(KeyError):  # a split that has closed has no position
                    receiver.acknowledge()
        except BaseException as error:
            self._failure = self._failure or error


def _last_messages(log: CommitLog) -> dict[str, dict[str, Any]]:
    """The stored last message of each namespace that has one, for `Reader.resume`."""
    found: dict[str, dict[str, Any]] = {}
    for name, phase in log.phases.items():
        if (last := phase.get("last")) is not None:
            data = None if last["data"] is None else msgspec.json.decode(last["data"])
            found[name] = {**last, "data": data}
    return found
