"""Sources: the interface of a change stream or the feed for a consumer, to share its units and to read one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from tailrace.coordination.units import Units
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Change, Item

R = TypeVar("R")


class UnitMoved(Exception):
    """An operator has moved the unit to another place: the member must take it again, from there."""


class UnitWrite(NamedTuple):
    """A write that commits with a position: on a table, None for the home's own."""

    table: Any
    action: Action
    racing: bool = False
    """Whether a refusal only means that another process was quicker, so that the same write is planned again."""


class UnitReader(Protocol[R]):
    """Reads one unit, from some place on.  One thread at a time uses it."""

    def read(self) -> Sequence[R]:
        """The next records; an empty list if there are none at the moment. May block while the service answers."""

    @property
    def ended(self) -> bool:
        """Whether nothing comes after the records read so far."""

    def kept(self, last: R | None) -> tuple[Change, ...]:
        """What the unit's item stores once a record and all before it are handled; None: nothing new."""

    def also(self, last: R | None) -> Steps[Sequence[Action]]:
        """What else is written with that, into the home's own table."""

    @property
    def due(self) -> bool:
        """Whether to commit although nothing was handled, since much was left out or the place grows old.  Called when
        all that was read is handled and committed."""

    def committed(self) -> None:
        """Called when the last results of `kept` and `also` are stored."""

    def close(self) -> None:
        """Free its resources."""


class UnitSource(Protocol[R]):
    """The units that a group works on."""

    units: Units
    fatal: tuple[type[Exception], ...]
    """Errors in reading a unit that end the consumer, since waiting does not help."""

    def look(self) -> Steps[None]:
        """Create units for what can be begun, and drop those that are gone."""

    def open(self, unit: str, item: Item) -> Steps[UnitReader[R]]:
        """Open a unit at the place that its item names."""

    def value(self, record: R) -> Any:
        """The record as handlers get it."""

    def writes(self, returned: Any) -> Steps[list[UnitWrite]]:
        """The writes that a handler returned; none if it returned None."""

    def described(self, unit: str, record: R) -> Mapping[str, Any]:
        """A record as a dead letter keeps it: `id`, which says where it was, and its content."""
