"""Rules: the protocol's conditions by name, so that a test can remove one and see that something breaks.

The names are those of the model in tests/model.  In production every rule is in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tailrace.storage.tables import Condition

_off: frozenset[str] = frozenset()


def in_force(name: str) -> bool:
    """Whether a rule holds: always, outside tests."""
    return name not in _off


def rules(named: Mapping[str, Condition]) -> tuple[Condition, ...]:
    """The conditions whose rules are in force."""
    return tuple(c for name, c in named.items() if name not in _off) if _off else tuple(named.values())


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch rules off, for a test that must then fail."""
    global _off  # noqa: PLW0603
    before, _off = _off, _off | frozenset(names)
    try:
        yield
    finally:
        _off = before
