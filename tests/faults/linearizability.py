"""Linearizability: can the calls of several processes be put in one order that a single log would have answered alike?

The search of Wing and Gong: of the calls not yet placed, one may come next if it began before any other of them ended,
and if the model gives its answer.  What was tried from the same state with the same calls placed is not tried again.
Pure: a history goes in, an order or None comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

State: TypeAlias = tuple[str, ...]
"""The values of one partition, by offset."""
NEVER = 1 << 62
"""The end of a call that was never answered."""


@dataclass(frozen=True)
class Call:
    """One call of one process, and when it began and ended by a clock that all share.

    append: given (expected offset or None, value), answered ["at", offset] or ["refused", next offset]
    tail:   answered the next offset
    read:   answered all values
    None as an answer: nobody knows; it may have happened, or happen yet, or never."""

    who: int
    start: int
    end: int
    op: str
    given: tuple[Any, ...] = ()
    answer: Any = None


def after(state: State, call: Call) -> Iterator[State]:
    """The states after a call with this answer; none, if a log in this state would not have answered so."""
    if call.op == "append":
        yield from _appended(state, call)
    elif (call.op == "tail" and call.answer == len(state)) or (call.op == "read" and tuple(call.answer) == state):
        yield state


def _appended(state: State, call: Call) -> Iterator[State]:
    expected, value = call.given
    fits = expected in (None, len(state))
    if call.answer is None:
        yield (*state, value) if fits else state
    elif call.answer == ["at", len(state)] and fits:
        yield (*state, value)
    elif call.answer == ["refused", len(state)] and not fits:
        yield state


def linearized(history: Sequence[Call], state: State = ()) -> list[Call] | None:
    """The calls in an order that explains all answers; None if there is none.  Those nobody knows of may be missing."""
    calls = sorted(history, key=lambda call: call.end)  # who ended first most likely came first
    everything = (1 << len(calls)) - 1
    unknown = sum(1 << n for n, call in enumerate(calls) if call.answer is None)
    path: list[int] = []
    tried = {(0, state)}
    open_choices = [_choices(calls, 0, state)]
    placed = 0
    while True:
        if placed | unknown == everything:
            return [calls[n] for n in path]
        for n, then in open_choices[-1]:
            if (placed | 1 << n, then) not in tried:
                placed |= 1 << n
                tried.add((placed, then))
                path.append(n)
                open_choices.append(_choices(calls, placed, then))
                break
        else:
            open_choices.pop()
            if not path:
                return None
            placed &= ~(1 << path.pop())


def _choices(calls: Sequence[Call], placed: int, state: State) -> Iterator[tuple[int, State]]:
    """What may come next, and the state after it."""
    left = [n for n in range(len(calls)) if not placed >> n & 1]
    first_end = min((calls[n].end for n in left), default=NEVER)
    for n in left:
        if calls[n].start <= first_end:
            for then in after(state, calls[n]):
                yield n, then


def told(history: Sequence[Call]) -> str:
    """A history for people, in the order in which the calls began."""
    first = min(call.start for call in history)
    lines = []
    for call in sorted(history, key=lambda call: call.start):
        when = (
            f"{(call.start - first) / 1e6:9.3f} to {'…' if call.end == NEVER else f'{(call.end - first) / 1e6:9.3f}'}"
        )
        lines.append(f"{when:24} process {call.who}: {call.op}{call.given} → {call.answer}")
    return "\n".join(lines)
