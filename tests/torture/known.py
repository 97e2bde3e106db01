"""Known: what the suite leaves out because it is known to fail, why, and until when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """Names of tables, traits of tables and names of actions that are left out."""

    leaves_out: tuple[str, ...]
    why: str
    until: str


STATED = "a stated limit: docs/guide/pipelines.md"
KNOWN: tuple[Known, ...] = (
    Known(("no columns",), "a table without columns is not carried", STATED),
    Known(("truncate_partition",), "the log does not tell of a TRUNCATE of one partition", STATED),
)


def left_out() -> tuple[str, ...]:
    """All that is left out."""
    return tuple(name for one in KNOWN for name in one.leaves_out)
