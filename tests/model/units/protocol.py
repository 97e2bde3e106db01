"""Two workers share a parent shard with two records and its child with one: every schedule of them, by breadth.

A worker looks which units there are, adds the child, takes a unit under the next epoch, and commits the effect of each
record together with the unit's position.  Any lease may run out at any time; a worker may die; a commit may be
unanswered and land later, or never.  A worker without an answer reads the unit and sends again, or gives the unit up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

RECORDS = {"parent": 2, "child": 1}
WORKERS = (0, 1)
MAX_EPOCH = 2
Mutants = frozenset[str]


class Unit(NamedTuple):
    """The item of a unit."""

    owner: int | None = None
    epoch: int = 0
    position: int = 0
    ended: bool = False


class Task(NamedTuple):
    """A unit that a worker believes to hold, and the position it has seen."""

    unit: str
    epoch: int
    seen: int
    unanswered: bool = False


class Worker(NamedTuple):
    """What a worker remembers: a unit it has looked at, as it was then, and its task."""

    saw: tuple[str, Unit | None] | None = None
    task: Task | None = None


class Commit(NamedTuple):
    """A write that moves a unit's position by one record, with its effect; or says that the unit has ended."""

    who: int
    task: Task
    ends: bool


class State(NamedTuple):
    """Everything: the stored items, what is on its way, what workers remember, and who really holds each unit."""

    parent: Unit = Unit()
    child: Unit | None = None
    effects: tuple[tuple[str, int], ...] = ()
    late: Commit | None = None
    workers: tuple[Worker, ...] = (Worker(), Worker())
    timeouts: int = 1
    deaths: int = 1
    wrong: str = ""

    def unit(self, name: str) -> Unit | None:
        """A unit's item."""
        return self.parent if name == "parent" else self.child

    def put(self, name: str, unit: Unit) -> State:
        """The same with another item."""
        return self._replace(parent=unit) if name == "parent" else self._replace(child=unit)

    def worker(self, n: int, worker: Worker) -> State:
        """The same with a worker that remembers something else."""
        return self._replace(workers=tuple(worker if k == n else one for k, one in enumerate(self.workers)))


def moves(s: State, m: Mutants) -> Iterator[State]:
    """Every state that one step leads to."""
    for n in WORKERS:
        worker = s.workers[n]
        if worker.task is None:
            yield from _begins(s, n, worker, m)
        else:
            yield from _works(s, n, worker.task, m)
        if s.deaths and worker != Worker():
            yield s.worker(n, Worker())._replace(deaths=s.deaths - 1)
    if s.late is not None:
        yield landed(s._replace(late=None), s.late, m)[0]
        yield s._replace(late=None)


def _begins(s: State, n: int, worker: Worker, m: Mutants) -> Iterator[State]:
    if worker.saw is None:
        for name in RECORDS:
            yield s.worker(n, Worker(saw=(name, s.unit(name))))
        return
    name, seen = worker.saw
    yield s.worker(n, Worker())
    if seen is None:
        yield added(s.worker(n, Worker()), m)
    elif not seen.ended and seen.epoch < MAX_EPOCH:
        yield taken(s.worker(n, Worker()), n, name, seen, m)


def _works(s: State, n: int, task: Task, m: Mutants) -> Iterator[State]:
    unit = s.unit(task.unit)
    assert unit is not None
    if task.unanswered:
        yield s.worker(n, Worker())
        if (unit.owner, unit.epoch) != (n, task.epoch):
            yield s.worker(n, Worker())
        else:
            yield s.worker(n, Worker(task=Task(task.unit, task.epoch, unit.position)))
        return
    if unit.owner == n and unit.epoch == task.epoch:
        yield s.put(task.unit, unit._replace(owner=None)).worker(n, Worker())
    enough = 1 if "text.ended_too_soon" in m else RECORDS[task.unit]
    for ends in {task.seen >= enough, task.seen >= RECORDS[task.unit]}:
        commit = Commit(n, task, ends)
        after, done = landed(s, commit, m)
        moved = None if ends or not done else task._replace(seen=task.seen + 1)
        yield after.worker(n, Worker(task=moved))
        if s.timeouts and s.late is None:
            waiting = s._replace(timeouts=s.timeouts - 1).worker(n, Worker(task=task._replace(unanswered=True)))
            yield waiting._replace(late=commit)
            yield landed(waiting, commit, m)[0]


# --- the guarded writes -----------------------------------------------------------------------------------------------
def added(s: State, m: Mutants) -> State:
    """Make the child, if it is absent and its parent has ended."""
    if s.child is not None and "add.absent" not in m:
        return s
    return s._replace(child=Unit()) if s.parent.ended or "shard.parent" in m else s


def taken(s: State, n: int, name: str, seen: Unit, m: Mutants) -> State:
    """Own a unit under the next epoch, if owner and epoch are as seen."""
    unit = s.unit(name)
    assert unit is not None
    if unit.ended or ((unit.owner, unit.epoch) != (seen.owner, seen.epoch) and "take.seen" not in m):
        return s
    epoch = seen.epoch + 1 if "take.seen" in m else unit.epoch + 1
    task = Task(name, epoch, unit.position)
    return s.put(name, unit._replace(owner=n, epoch=epoch)).worker(n, Worker(task=task))


def landed(s: State, commit: Commit, m: Mutants) -> tuple[State, bool]:
    """Move the position with the effect, if this worker owns the unit in this epoch and the position is as seen."""
    who, task, ends = commit
    unit = s.unit(task.unit)
    assert unit is not None
    if unit.owner != who and "commit.owner" not in m:
        return s, False
    if unit.epoch != task.epoch and "commit.epoch" not in m:
        return s, False
    if unit.position != task.seen and "commit.position" not in m:
        return s, False
    if (unit.owner, unit.epoch) != (who, task.epoch):
        s = s._replace(wrong="a commit by a past owner counts")
    if ends:
        return s.put(task.unit, unit._replace(ended=True, owner=None)), True
    s = s._replace(effects=(*s.effects, (task.unit, task.seen)))
    return s.put(task.unit, unit._replace(position=task.seen + 1)), True


# --- what must hold ---------------------------------------------------------------------------------------------------
def harm(s: State) -> str:
    """What is wrong with a state; "" if nothing is."""
    if s.wrong:
        return s.wrong
    if len(set(s.effects)) < len(s.effects):
        return "a record was committed twice"
    units = [unit for unit, _ in s.effects]
    if "child" in units and units.index("child") < RECORDS["parent"]:
        return "a child was handled before its parent was drained"
    if any([n for unit, n in s.effects if unit == name] != list(range(units.count(name))) for name in RECORDS):
        return "a unit was reordered"
    ended = [name for name in RECORDS if (unit := s.unit(name)) is not None and unit.ended]
    if any(units.count(name) < RECORDS[name] for name in ended):
        return "a unit ended before its records were handled"
    return ""


def explore(m: Mutants = frozenset()) -> tuple[str, bool]:
    """The first harm in any schedule, in the fewest steps, and whether some schedule came to the end of both units."""
    known, queue, finished = {State()}, deque([State()]), False
    while queue:
        state = queue.popleft()
        if why := harm(state):
            return why, finished
        finished = finished or (state.parent.ended and state.child is not None and state.child.ended)
        for after in moves(state, m):
            if after not in known:
                known.add(after)
                queue.append(after)
    return "", finished
