"""Missing targets: errors about a table, collection, index or topic that a writer needs and the sink does not have.

A sink makes a missing place only with `create = true`, and adds fields to a place only with `alter = true`; otherwise
the error names the command that would do it.  If a place that the writer has written to is gone, the sink never makes
it again silently: everything that was delivered before would be missing from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.adaptors.contract import Who
from tailrace.errors import NotReady


def not_made(namespace: str, kind: str, order: str) -> NotReady:
    """The error for a sink that has no place for a namespace and must not make one.  `order` is the command that would
    make it."""
    return NotReady(
        f"the sink has no {kind} for {namespace}, and this writer has not written one; set create = true, or: {order}"
    )


def lacks_fields(place: str, kind: str, fields: Sequence[str], order: str) -> NotReady:
    """The error for a place (a table, collection or index) that lacks fields and must not be changed.  `order` is the
    command that would add them."""
    which = ", ".join(fields)
    return NotReady(f"the sink's {kind} {place} has no column {which}; set alter = true, or: {order}")


def gone(who: Who, namespace: str, place: str, kind: str) -> NotReady:
    """The error for a place that the writer has written to and that is gone when the writer writes to it again."""
    return NotReady(
        f"the sink's {kind} {place} is gone, or was emptied, and with it all rows of {namespace} that were "
        "delivered; a new one would get only what comes from now on. "
        f"`tailrace offset delete {who.pipeline} {who.writer} --why …` has everything delivered again"
    )


def shared(namespace: str, other: str, place: str) -> NotReady:
    """The error for two namespaces of one writer that would be written to one place."""
    return NotReady(
        f"{namespace} and {other} would both be written to {place} of the sink, where equal ids replace "
        "each other; move one of them on its way: remap({…})"
    )
