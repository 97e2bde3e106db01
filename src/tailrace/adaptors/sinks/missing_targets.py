"""Missing targets: what to say of a table, collection, index or topic that a writer needs, or misses.

A sink makes a place that is missing only with `create = true`, and changes one that lacks fields only with
`alter = true`; otherwise it says what would do it.  A place that it has written to and that is gone is never made
again in silence: everything that was delivered before would be missing from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.adaptors.contract import Who
from tailrace.errors import NotReady


def not_made(namespace: str, kind: str, order: str) -> NotReady:
    """The sink has no place for a namespace, and must not make one; `order` is the command that would."""
    return NotReady(
        f"the sink has no {kind} for {namespace}, and this writer has not written one; set create = true, or: {order}"
    )


def lacks_fields(place: str, kind: str, fields: Sequence[str], order: str) -> NotReady:
    """A place lacks fields, and must not be changed; `order` is the command that would add them."""
    which = ", ".join(fields)
    return NotReady(f"the sink's {kind} {place} has no column {which}; set alter = true, or: {order}")


def gone(who: Who, namespace: str, place: str, kind: str) -> NotReady:
    """A place that the writer has written to is missed while it is written."""
    return NotReady(
        f"the sink's {kind} {place} is gone, or was emptied, and with it all rows of {namespace} that were "
        "delivered; a new one would get only what comes from now on. "
        f"`tailrace offset delete {who.pipeline} {who.writer} --why …` has everything delivered again"
    )


def shared(namespace: str, other: str, place: str) -> NotReady:
    """Two namespaces of one writer would be written to one place."""
    return NotReady(
        f"{namespace} and {other} would both be written to {place} of the sink, where equal ids replace "
        "each other; move one of them on its way: remap({…})"
    )
