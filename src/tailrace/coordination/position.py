"""Positions: how far the holder of a lease has come, moved under its fence.

    owner, epoch, position    the attributes of an item whose owner moves a position (a SHARD of a group)

COMMIT: position = p if owner = me and epoch = mine and position = seen.  The first two keep past owners out, the last
keeps out an attempt of one's own that lands late.  Conditions are named as in the protocol's model, tests/model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.lease import Held, stored, waited
from tailrace.coordination.rules import rules
from tailrace.errors import Conflict, Fenced
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Equals, Item, Key, Set, Update


@dataclass(frozen=True, slots=True)
class Move:
    """A position to be moved, from where it was last seen."""

    held: Held
    seen: int
    to: int

    def action(self) -> Update:
        """COMMIT: only by the holder of this epoch, and only from there."""
        when = self.held.when() + rules({"commit.position": Equals("position", self.seen)})
        return Update(self.held.key, (Set("position", self.to),), when)

    def left(self, item: Item | None) -> Move | None:
        """What is still to be moved, by the stored item: an attempt without an answer may have landed, this one or one
        before it.  None: nothing.  `Fenced` if the lease is another's by now."""
        if item is None or not self.held.stands(item):
            raise Fenced(
                f"{self.held.key.p}, partition {self.held.key.i}: position {self.to} was not committed, because "
                + ("the group was deleted" if item is None else f"a newer owner has it (epoch {item['epoch']})"),
                item=item,
            )
        return Move(self.held, item["position"], self.to) if item["position"] < self.to else None


def commit(moves: Sequence[Move], patience: float = guard.PATIENCE) -> Steps[dict[Key, Fenced]]:
    """COMMIT positions in one write; gives the refusals of those whose lease has a newer owner.

    A position never moves back, nor past what was asked, however late an attempt lands: each is moved from where it was
    seen, and is compared before it is moved again.  `TimedOut` if there is no answer for too long."""
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


def _compared(moves: Sequence[Move], outcome: Refused | Unanswered, fenced: dict[Key, Fenced]) -> Steps[list[Move]]:
    """What is still to be committed: a refusal shows one item, and without an answer all are read."""
    left = []
    for n, move in enumerate(moves):
        again: Move | None = move
        if isinstance(outcome, Unanswered) or outcome.index == n:
            try:
                again = move.left((yield from stored(move.held.key, outcome)))
            except Fenced as error:
                fenced[move.held.key], again = error, None
        left += [again] if again is not None else []
    return left


def commit_with(move: Move, also: Sequence[Action], patience: float = guard.PATIENCE) -> Steps[int]:
    """COMMIT a position and other writes together, or none of them: exactly once, whatever is repeated.

    Gives the position then stored: if it is not the one asked for, an earlier attempt of one's own had moved it, and
    nothing was written now.  `Fenced` if the lease has a newer owner; `Conflict` if another write is refused (`index`
    says which)."""
    began = yield from calls.now()
    while True:
        outcome = yield from guard.attempt(move.action(), *also, patience=patience)
        if isinstance(outcome, Written):
            return move.to
        if isinstance(outcome, Refused) and outcome.index:
            what = also[outcome.index - 1].key
            raise Conflict(f"{what.p}/{what.i} was not as expected", index=outcome.index - 1, item=outcome.item)
        left = move.left((yield from stored(move.held.key, outcome)))
        if left != move:
            return move.to if left is None else left.seen
        yield from waited(began, patience, "a commit")
