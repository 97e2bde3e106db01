"""Positions: how far the holder of a lease has come, moved under its fence.

    owner, epoch, position    the attributes of an item whose owner moves a position (a SHARD of a group)

COMMIT: position = p if owner = me and epoch = mine and position = seen.  The first two keep past owners out, the last
keeps out an earlier attempt of the owner that lands late.  Conditions are named as in the protocol's model,
tests/model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.lease import HeldLease, stored, waited
from tailrace.coordination.rules import rules
from tailrace.errors import Conflict, Fenced
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Change, Equals, Item, Key, Set, Update


@dataclass(frozen=True, slots=True)
class PositionMove:
    """A position to be moved, from where it was last seen."""

    held: HeldLease
    seen: int
    to: int
    changes: tuple[Change, ...] = ()
    """Other changes of the item with its position: the exact place of a reader, its counts."""

    def action(self) -> Update:
        """COMMIT: only by the holder of this epoch, and only from there."""
        when = self.held.when() + rules({"commit.position": Equals("position", self.seen)})
        return Update(self.held.key, (Set("position", self.to), *self.changes), when)

    def left(self, item: Item | None) -> PositionMove | None:
        """What remains to be moved, judged by the stored item, since an attempt without an answer may have landed;
        None: nothing.  `Fenced` if the lease has another owner by now."""
        if item is None or not self.held.stands(item):
            unit = item.get("unit") if item is not None else None
            what = f"partition {self.held.key.i}" if unit is None else str(unit)
            raise Fenced(
                f"{self.held.key.p}, {what}: position {self.to} was not committed, because "
                + ("the group was deleted" if item is None else f"a newer owner has it (epoch {item['epoch']})"),
                item=item,
            )
        return replace(self, seen=item["position"]) if item["position"] < self.to else None


def commit(moves: Sequence[PositionMove], patience: float = guard.PATIENCE) -> Steps[dict[Key, Fenced]]:
    """COMMIT positions in one write; returns the refusals of those whose lease has a newer owner.

    A position never moves back, nor past the wanted one, however late an attempt lands: each attempt moves it from
    where it was seen, and compares it before the next.  `TimedOut` if there is no answer for too long."""
    left, fenced = list(moves), dict[Key, Fenced]()
    began = yield from calls.now()
    while left:
        outcome = yield from guard.attempt(*(move.action() for move in left), patience=patience)
        if isinstance(outcome, Written):
            break
        left = yield from _compared(left, outcome, fenced)
        if left and isinstance(outcome, Unanswered):
            yield from waited(began, patience, "a commit")
    return fenced


def _compared(
    moves: Sequence[PositionMove], outcome: Refused | Unanswered, fenced: dict[Key, Fenced]
) -> Steps[list[PositionMove]]:
    """What is still to be committed: a refusal shows one item; after a missing answer all items are read."""
    left = []
    for n, move in enumerate(moves):
        again: PositionMove | None = move
        if isinstance(outcome, Unanswered) or outcome.index == n:
            try:
                again = move.left((yield from stored(move.held.key, outcome)))
            except Fenced as error:
                fenced[move.held.key], again = error, None
        left += [again] if again is not None else []
    return left


def commit_with(
    move: PositionMove, also: Sequence[Action], patience: float = guard.PATIENCE, tables: Sequence[Any] = ()
) -> Steps[int]:
    """COMMIT a position and other writes together, or none of them: exactly once, whatever is repeated.

    `tables` are the tables of the other writes, None for the home's own; empty: all are on the home's own.

    Returns the position stored then: if it is not the wanted one, an earlier attempt of this process has moved it, and
    nothing was written now.  `Fenced` if the lease has a newer owner; `Conflict` if another write is refused (`index`
    says which)."""
    began = yield from calls.now()
    while True:
        where = (None, *tables) if tables else ()
        outcome = yield from guard.attempt(move.action(), *also, patience=patience, tables=where)
        if isinstance(outcome, Written):
            return move.to
        if isinstance(outcome, Refused) and outcome.index:
            what = also[outcome.index - 1].key
            raise Conflict(f"{what.p}/{what.i} was not as expected", index=outcome.index - 1, item=outcome.item)
        left = move.left((yield from stored(move.held.key, outcome)))
        if left != move:
            return move.to if left is None else left.seen
        yield from waited(began, patience, "a commit")
