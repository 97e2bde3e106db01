"""Acknowledgements: the writes that store the outcomes of messages, and that emit more of them.

Acknowledgements and failures of many shards go into one transaction.  Dead letters, and what transactional handlers
write, are stored together with the window of the one shard that they belong to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.coordination.rules import in_force
from tailrace.errors import Fenced, OutcomeUnknown, StorageError, UnknownTopic
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import FurtherWrites
from tailrace.log.write.placement import Placed
from tailrace.queue.dead_letters import bury
from tailrace.queue.desk import Desk, Desks, Outcome
from tailrace.queue.lanes import Entry
from tailrace.queue.shard import Planned, by_transaction, write
from tailrace.queue.transaction import Acked, AckTransaction, commit_acked
from tailrace.queue.window import ISOLATE
from tailrace.storage import calls
from tailrace.storage.calls import Steps

_log = logging.getLogger("tailrace")


class Plan(NamedTuple):
    """One desk's part of a write."""

    desk: Desk
    planned: Planned
    emitted: list[int]
    """The offsets of the messages that it emits."""
    told: list[Outcome]


class Acknowledgements:
    """Writes the windows of a consumer's desks."""

    def __init__(
        self,
        log: TopicLog,
        desks: Desks,
        *,
        acking: bool,
        batch_size: int,
        attempts: int,
        name: str,
        dead_log: Callable[[], TopicLog],
        wall: Callable[[], float],
        lose: Callable[[Desk], None],
    ) -> None:
        self._log, self._desks, self._acking, self._batch_size = log, desks, acking, batch_size
        self._name, self._dead_log, self._wall, self._lose = name, dead_log, wall, lose
        self._isolate = max(1, min(ISOLATE, attempts - 1))
        self.emitted = 0

    # -- many shards at once
    def write(self, *, emits: bool) -> Steps[bool]:
        """Write the outcomes of messages and, if `emits`, emit more messages; returns whether there was anything to
        write."""
        with self._desks.lock:
            plans = [plan for desk in self._desks.values() if (plan := self._plan(desk, emits)) is not None]
        for group in by_transaction(plans, lambda plan: plan.planned.shard):
            try:
                yield from write([plan.planned for plan in group])
            except StorageError as error:
                _log.warning(
                    "queue %s: an acknowledgement had no answer, its shards are taken again: %s", self._log.name, error
                )
            with self._desks.lock:
                for plan in group:
                    self._written(plan)
        return bool(plans)

    def _plan(self, desk: Desk, emits: bool) -> Plan | None:
        if desk.shard.writing:
            return None
        told = desk.told()
        new = desk.applied(told)
        offsets: list[int] = []
        if emits and not (desk.leaving or desk.shard.is_paused):
            end = desk.fetched[-1].offset + 1 if desk.fetched else new.upto
            room = desk.room(self._batch_size, waits=self._desks.lanes.waits)
            offsets = list(new.emit(max(end, new.upto), room, self._isolate))
            if not self._acking:
                for offset in offsets:
                    new.finish(offset)
        new.settle()
        if not told and not offsets and not desk.missing:
            return None
        new.mark(int(self._wall() * 1000))
        desk.outcomes = desk.dead()
        desk.shard.writing = True
        return Plan(desk, Planned(desk.shard, new, bool(offsets)), offsets, told)

    def _written(self, plan: Plan) -> None:
        desk = plan.desk
        desk.shard.writing = False
        if plan.planned.outcome == "paused":
            desk.outcomes = plan.told + desk.outcomes
            self._desks.paused = True
            return
        if plan.planned.outcome != "written":
            self._lose(desk)
            return
        if desk not in self._desks.values():
            return  # another consumer took its shard in the same round
        desk.forget(plan.told)
        for entry in desk.emit(set(plan.emitted)):
            self._desks.lanes.add(entry)
        self.emitted += len(plan.emitted)

    # -- one shard with other things
    def bury(self) -> Steps[None]:
        """Store each shard's dead letters and acknowledge their messages, in one transaction for each shard."""
        with self._desks.lock:
            desks = [desk for desk in self._desks.values() if not desk.shard.writing and desk.dead()]
        for desk in desks:
            with self._desks.lock:
                dead = desk.dead()
            now = int(self._wall() * 1000)
            letters = [(outcome.entry, outcome.reason, outcome.entry.tries) for outcome in dead]
            try:
                placed = yield from bury(self._dead_log(), self._log.name, letters, now, self._name)
                if not in_force("queue.bury_together"):
                    yield from commit([placed])
                yield from self._transact(desk, dead, [placed] if in_force("queue.bury_together") else [], None)
            except UnknownTopic:  # the topic of dead letters was deleted just now: the next round creates another
                continue
            with self._desks.lock:
                for outcome in dead:
                    self._desks.lanes.finish(outcome.entry)

    def transact(self, entry: Entry, run: int, transaction: AckTransaction) -> Steps[None]:
        """Commit a handler's transaction with the acknowledgement of its message; raises `Fenced` if the run no longer
        counts."""
        placed, others = yield from transaction.parts()
        with self._desks.lock:
            desk = self._desks.of_run(entry, run)
        if desk is None:
            raise Fenced(f"shard {entry.partition} has a newer owner, or the handler took too long: nothing is stored")
        yield from self._transact(desk, [Outcome(entry, "ack")], placed, others)
        with self._desks.lock:
            self._desks.lanes.finish(entry)

    def _transact(
        self, desk: Desk, done: list[Outcome], placed: Sequence[Placed], others: FurtherWrites | None
    ) -> Steps[None]:
        """WRITE one shard together with chunks and further writes; `done` are the outcomes that the same transaction
        makes durable."""
        while True:
            with self._desks.lock:
                if desk not in self._desks.values():
                    raise Fenced(f"shard {desk.partition} has a newer owner: nothing is stored")
                if not desk.shard.writing:
                    desk.shard.writing = True
                    told = desk.told()
                    new = desk.applied(told)
                    for outcome in done:
                        new.finish(outcome.entry.offset, dead=outcome.what == "dead")
                    new.settle()
                    new.mark(int(self._wall() * 1000))
                    desk.outcomes = [o for o in desk.outcomes if o not in told and o not in done]
                    break
            yield from calls.pause(0)
        try:
            yield from commit_acked(Acked(desk.shard, new), placed, others)
        except BaseException as error:
            with self._desks.lock:
                desk.shard.writing = False
                if isinstance(error, (Fenced, OutcomeUnknown, StorageError)) or not isinstance(error, Exception):
                    self._lose(desk)
                else:
                    desk.outcomes = told + [o for o in done if o.what == "dead"] + desk.outcomes
            if not (isinstance(error, Fenced) and done and done[0].what == "dead"):
                raise
            return
        with self._desks.lock:
            desk.shard.writing = False
            desk.forget(told + done)
