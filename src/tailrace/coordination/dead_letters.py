"""Dead letters: records that a handler could not take, kept aside with the reason, in the same commit that passes over
them.

    $DeadLetters-<of>_<group>, number    id, unit, error, at, and the record; left_out[]: parts too large to be kept

A letter is written in the same transaction as the position behind its record, so each record that was passed over has
one.  Its number is made of the unit and of the record's place in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.units import Units, number_of
from tailrace.errors import NotThere
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ITEM_BYTES, item_size
from tailrace.storage.tables import Action, Delete, Item, Key, Put, Regardless

RESERVED_BYTES = 8 * 1024
"""Bytes of an item that are kept free for everything except the record."""
_OWN = ("p", "i", "id", "unit", "error", "at", "left_out")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was passed over, and why."""

    number: int
    at: int
    """Milliseconds since 1970."""
    unit: str
    id: str
    """The record's place in its unit."""
    error: str
    record: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    """Parts of the record that were too large to be kept."""


def hash_key(units: Units) -> str:
    """The hash key of a group's dead letters."""
    return f"$DeadLetters-{units.of}_{units.group}"


def letter_actions(units: Units, kept: Mapping[str, Any]) -> list[Action]:
    """The write that keeps a record: `id`, `unit`, `error`, `at`, and its content."""
    item, left_out = {**kept, "error": str(kept["error"])[:2000]}, []
    content = sorted((name for name in item if name not in _OWN), key=lambda name: -item_size({name: item[name]}))
    while item_size(item) > MAX_ITEM_BYTES - RESERVED_BYTES and content:
        left_out.append(content.pop(0))
        del item[left_out[-1]]
    key = Key(hash_key(units), number_of(f"{kept['unit']}/{kept['id']}"))
    return [Put(key, {**item, **({"left_out": left_out} if left_out else {})}, (Regardless(),))]


def dead_letters(units: Units) -> Steps[list[DeadLetter]]:
    """Every dead letter of a group, oldest first; those of one millisecond and unit in the order of their records."""
    items = yield from guard.read_all(hash_key(units))
    return sorted((_letter(item) for item in items), key=lambda one: (one.at, one.unit, len(one.id), one.id))


def _letter(item: Item) -> DeadLetter:
    record = {name: value for name, value in item.items() if name not in _OWN}
    left_out = tuple(item.get("left_out", ()))
    return DeadLetter(item["i"], item["at"], item["unit"], item["id"], item["error"], record, left_out)


def settle(units: Units, number: int) -> Steps[None]:
    """Remove a dead letter that an operator has dealt with."""
    key = Key(hash_key(units), number)
    if (yield from guard.read(key)) is None:
        raise NotThere(f"{units.title} has no dead letter {number}")
    yield from guard.settle(key, lambda item: None if item is None else (Delete(key, (Regardless(),)),))
