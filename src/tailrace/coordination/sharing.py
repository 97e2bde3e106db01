"""Sharing: one member's work on the units it holds, record by record, each commit under the unit's fence.

A source lists the units, and reads one from its committed position.  A handler gets one record after another.  What
it returns (table writes, event appends) is committed together with the position behind the record, in one transaction:
exactly once.  A handler that returns nothing runs at least once: after a crash, the member that takes the unit over
handles again what was handled since the last commit.

Everything here is steps, so that the simulator can drive it.  Several threads may work on a `UnitWorker` at once:
`look` in one of them, each task in at most one.  An error stops only its unit: the others go on, and new ones are
found.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tailrace.coordination import guard, lease, position
from tailrace.coordination.dead_letters import letter_actions
from tailrace.coordination.failure import OnError, cause_of, said, verdict
from tailrace.coordination.lease import TTL_SECONDS
from tailrace.coordination.member import Member
from tailrace.coordination.position import PositionMove
from tailrace.coordination.source import UnitMoved, UnitSource, UnitWrite
from tailrace.coordination.task import Task
from tailrace.coordination.units import Units
from tailrace.errors import Conflict, Fenced, HandlerFailed, HandlerStuck, PositionLost, StorageError, TailraceError
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Change, Item, Set

R = TypeVar("R")

TURN_RECORDS, TURN_SECONDS = 1000, 1.0
"""How much of one unit is handled before other units have their turn: records, and seconds."""
MAX_SHOWN_UNITS, MAX_SHOWN_ERROR_CHARACTERS = 500, 500
"""The most units that a member shows with its beat, and the most characters of the error of each."""
MAX_RETRY_SECONDS = 30.0
"""The most seconds before the worker tries again to read a unit that it could not read."""

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How records are handled and committed."""

    on_error: OnError = "stop"
    attempts: int = 3
    """How often a handler may fail for a record before `on_error` decides."""
    commit_interval: float = 1.0
    """Seconds between commits while records keep coming; when they stop, the handled ones are committed at once."""
    patience: float = guard.PATIENCE
    """Seconds for which the worker repeats a commit without an answer, before it takes the unit again."""


class _UnitLost(Exception):
    """Another member owns the unit now, or may own it: this member handles no more of it."""


class _Left(Exception):
    """The handler waits for something while the unit is to be released: the current record stays unhandled."""


class UnitMember(Member[str]):
    """A member that remembers the items of the units it took, and shows the state of each."""

    def __init__(self, units: Units, number: int, **settings: Any) -> None:
        super().__init__(units, number, **settings)
        self.items: dict[str, Item] = {}
        self.fares: Callable[[], dict[str, Any]] = dict

    def took(self, unit: str, item: Item) -> None:
        """Remember the item of a unit that this member has taken."""
        super().took(unit, item)
        self.items[unit] = item

    def shown(self) -> dict[str, Any]:
        """What this member shows people: where it runs, and the state of its units."""
        return {**super().shown(), "units": self.fares()}


class UnitWorker(Generic[R]):
    """Works on a member's units. `tasks` has those that the member holds."""

    def __init__(
        self,
        source: UnitSource[R],
        number: int,
        handle: Callable[[Any], Any],
        policy: Policy,
        *,
        ttl: float = TTL_SECONDS,
        name: str | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.source, self.policy = source, policy
        self.member = UnitMember(source.units, number, name=name, ttl=ttl, wall=wall)
        self.member.fares = self.fares
        self.tasks: dict[str, Task[R]] = {}
        self.closing = False
        self.settled = False
        self.trouble = ""
        """Why the last look for new units failed."""
        self.skipped = self.dead = self.handled = self._losses = 0
        self._handle, self._wall = handle, wall

    def fares(self) -> dict[str, Any]:
        """When each unit last made progress (milliseconds since 1970), and its error.  If there are very many units,
        only those that have waited longest are included, since each beat writes them into one item."""
        longest = sorted(self.tasks.values(), key=lambda task: task.progress)[:MAX_SHOWN_UNITS]
        return {
            task.unit: {
                "at": int(task.progress * 1000),
                **({"error": task.error[:MAX_SHOWN_ERROR_CHARACTERS]} if task.error else {}),
            }
            for task in longest
        }

    # -- which units
    def look(self, find: bool = True) -> Steps[None]:
        """Find units and share them. If looking for new units fails, the known ones are shared."""
        losses = self._losses
        try:
            if find:
                yield from self.source.look()
                self.trouble = ""
        except PositionLost:
            raise
        except TailraceError as error:
            if said(error) != self.trouble:
                log.warning("%s: looking for what is new failed, and is tried again: %s", self._title, error)
            self.trouble = said(error)
        balance = yield from self.member.share_out()
        held = dict(self.member.held)
        for unit, task in list(self.tasks.items()):
            if held.get(unit) != task.held:
                self._lose(task)
        for unit, mine in held.items():
            if unit not in self.tasks:
                item = self.member.items[unit]
                task = Task[R](unit, mine, item, item["position"], records=item.get("records", 0))
                task.progress = self._wall()
                self.tasks[unit] = task
            self.tasks[unit].leaving = unit in balance.over
        self.settled = balance.settled and self._losses == losses

    @property
    def _title(self) -> str:
        return self.source.units.title

    def _lose(self, task: Task[R]) -> None:
        """Forget a unit.  The lease may still name this member as the owner; then the member takes it again under a
        higher epoch: by then a commit without an answer has landed, or it never will."""
        self._losses, self.settled = self._losses + 1, False  # before it is gone: else all would seem handled
        if self.tasks.get(task.unit) is task:
            del self.tasks[task.unit]
        if self.member.held.get(task.unit) == task.held:
            self.member.drop(task.unit)
        if task.reader is not None:
            task.reader.close()

    def release(self, task: Task[R]) -> Steps[None]:
        """Commit the handled records of a unit, and release it."""
        try:
            yield from self._settle(task)
        except _UnitLost:
            return
        self._lose(task)
        try:
            yield from lease.release(task.held)
        except StorageError as error:  # the next look takes it again, or releases it
            log.warning("%s, %s could not be given back just now: %s", self._title, task.unit, error)

    # -- one unit's turn
    def turn(self, task: Task[R]) -> Steps[bool]:
        """Handle the next records of a unit; returns whether there were any.  `HandlerFailed` if the policy is to
        stop."""
        try:
            return (yield from self._turn(task))
        except _UnitLost:
            return False
        except _Left:
            yield from self.release(task)
            return False

    def _turn(self, task: Task[R]) -> Steps[bool]:
        if not task.queue and not task.leaving:
            yield from self._fill(task)
        began, handled = (yield from calls.now()), 0
        committed = began
        while task.queue and not task.leaving and not self.closing:
            yield from self._deliver(task, task.queue[0])
            task.queue.popleft()
            handled += 1
            now = yield from calls.now()
            if now - committed >= self.policy.commit_interval:
                yield from self._settle(task)
                committed = now
            if handled >= TURN_RECORDS or now - began >= TURN_SECONDS:
                break
        yield from self._settle(task)
        if task.reader is not None and not task.queue and task.reader.due:
            yield from self._commit(task, None, ())
        if task.leaving:
            yield from self.release(task)
        elif not task.queue and task.reader is not None and task.reader.ended:
            yield from self._commit(task, task.last, (), Set("ended", True))
            yield from self.release(task)
        return handled > 0

    def _fill(self, task: Task[R]) -> Steps[None]:
        """Read the next records. A unit that cannot be read is tried again after a pause, which grows each time."""
        task.asked = yield from calls.now()
        try:
            if task.reader is None:
                task.reader = yield from self.source.open(task.unit, task.item)
            task.queue.extend(task.reader.read())
        except UnitMoved as error:
            self._lose(task)
            raise _UnitLost from error
        except self.source.fatal:
            raise
        except Exception as error:
            if said(error) != task.error:
                log.warning("%s, %s cannot be read, and is tried again: %s", self._title, task.unit, error)
            task.error = said(error)
            task.lost = error if isinstance(error, PositionLost) else None
            task.failures += 1
            pause = min(MAX_RETRY_SECONDS, 0.05 * 2.0 ** min(task.failures, 16))
            task.not_before = (yield from calls.now()) + pause
            task.caught_up = False
            return
        task.error, task.lost, task.failures, task.progress = "", None, 0, self._wall()
        task.caught_up = not task.queue

    def _deliver(self, task: Task[R], record: R) -> Steps[None]:
        """Call the handler for a record, as often as its policy allows, and commit what it returns."""
        failed = attempts = 0
        while True:
            writes: list[UnitWrite] = []
            attempts += 1
            try:
                returned = yield from self._handled(task, record)
                writes = yield from self.source.writes(returned)
                if writes:
                    yield from self._commit(task, record, writes)
            except (_UnitLost, _Left):
                raise
            except Exception as error:
                if self.tasks.get(task.unit) is not task:  # its record was passed over, since the handler hung
                    raise _UnitLost from error
                racing = isinstance(error, _WriteRefused) and writes[error.index].racing
                failed += not racing
                if racing or (yield from self._is_tried_again(task, record, error, failed)):
                    yield from self._pause(task, attempts)
                    continue
            else:
                self.handled += 1
                if not writes:
                    self._pass(task, record)
            task.error, task.progress = "", self._wall()
            return

    def _handled(self, task: Task[R], record: R) -> Steps[Any]:
        value = self.source.value(record)
        task.handling = (yield from calls.now()), record, task.seen
        try:
            return self._handle(value)
        finally:
            task.handling = None

    def _pause(self, task: Task[R], attempts: int) -> Steps[None]:
        if task.leaving or self.closing:
            raise _Left
        yield from calls.pause(min(2 + attempts, 8))

    def _pass(self, task: Task[R], record: R) -> None:
        task.last = record
        task.records += 1

    def _is_tried_again(self, task: Task[R], record: R, error: Exception, failed: int) -> Steps[bool]:
        """Decide what follows from a failure: True if the record is to be tried again, False if it was passed over."""
        cause = cause_of(error)
        what = verdict(cause, self.policy.on_error)
        task.error = said(error)
        if what == "wait" or (cause == "data" and failed < self.policy.attempts):
            return True
        kept = self.source.described(task.unit, record)
        where = f"{self._title}: record {kept['id']} of {task.unit}"
        if what == "stop":
            yield from self._settle(task)
            raise HandlerFailed(
                f"{where} failed {failed} times: {said(error)}. What came before it is committed; mend the handler and "
                'start again, or let on_error="dead_letter" keep such records aside',
                unit=task.unit,
                record=str(kept["id"]),
            ) from error
        log.warning("%s failed %d times and is passed over (%s): %s", where, failed, what, said(error))
        yield from self._pass_over(task, record, error)
        return False

    def _pass_over(self, task: Task[R], record: R, error: Exception) -> Steps[None]:
        """Leave a record out, or keep it as a dead letter: as the policy says."""
        if self.policy.on_error == "skip":
            self.skipped += 1
            self._pass(task, record)
            return
        kept, at = self.source.described(task.unit, record), int(self._wall() * 1000)
        letter = letter_actions(self.source.units, {**kept, "unit": task.unit, "error": said(error), "at": at})
        yield from self._commit(task, record, [UnitWrite(None, action) for action in letter])
        self.dead += 1

    def give_up(self, task: Task[R], error: HandlerStuck) -> Steps[None]:
        """Pass over the record whose handler hangs, and give the unit up: the member that takes it next begins behind
        that record.

        Called from another thread than the handler's, on a copy of the task as it was when the handler began.  So this
        commit is refused if the handler's thread has committed since, and what that thread commits later is refused."""
        if task.handling is None:
            return
        _, record, seen = task.handling
        log.warning("%s (on_error: %s)", error, self.policy.on_error)
        copy = replace(task, seen=seen)
        try:
            yield from self._pass_over(copy, record, error)
            yield from self._settle(copy)
        except _UnitLost:
            pass
        finally:
            self._lose(task)

    # -- commits
    def _settle(self, task: Task[R]) -> Steps[None]:
        """Commit the handled records that are not committed yet."""
        if task.last is not None:
            yield from self._commit(task, task.last, ())

    def _commit(self, task: Task[R], last: R | None, writes: Sequence[UnitWrite], *changes: Change) -> Steps[None]:
        """COMMIT: everything up to a record, and these writes with it, or nothing."""
        assert task.reader is not None
        more = len(writes) > 0
        counted = Set("records", task.records + more)
        move = PositionMove(task.held, task.seen, task.seen + 1, (*task.reader.kept(last), counted, *changes))
        try:
            also = yield from task.reader.also(last)
            tables = [*(None for _ in also), *(write.table for write in writes)]
            actions = [*also, *(write.action for write in writes)]
            across = tables if any(table is not None for table in tables) else ()
            yield from position.commit_with(move, actions, self.policy.patience, across)
        except Fenced as error:
            log.info("%s, %s: %s", self._title, task.unit, error)
            self._lose(task)
            raise _UnitLost from error
        except Conflict as error:
            if error.index is not None and error.index >= len(also):
                raise _WriteRefused(str(error), index=error.index - len(also), item=error.item) from error
            self._lose(task)
            raise _UnitLost from error
        except StorageError as error:
            log.warning("%s, %s: a commit had no answer; the unit is taken again: %s", self._title, task.unit, error)
            self._lose(task)
            raise _UnitLost from error
        task.reader.committed()
        task.seen += 1
        task.records += more
        task.last = None
        task.progress = self._wall()


class _WriteRefused(Conflict):
    """A write that a handler returned was refused."""
