"""The event store: a cart's history, and a decision that is made again if another writer was first.

python examples/events_cart.py [HOME]

0 Added
1 Added
2 CheckedOut
"""

# ruff: noqa: T201

import sys
from dataclasses import dataclass

import tailrace
from tailrace.events import JsonCodec


@dataclass
class Added:
    """Something was put into the cart."""

    item: str


@dataclass
class CheckedOut:
    """The cart was paid for."""

    items: int


def fold(items, event):
    """The items in the cart, after one more event."""
    return [*items, event.item] if isinstance(event, Added) else items


with tailrace.open(sys.argv[1] if len(sys.argv) > 1 else "./data") as home:
    cart = home.events().decider("Cart-42", JsonCodec(Added, CheckedOut), fold, [])
    cart.transact(lambda items: [Added("tea"), Added("mug")])
    cart.transact(lambda items: [CheckedOut(len(items))] if items else [])
    for event in home.events().stream("Cart-42").read():
        print(event.index, event.type)
