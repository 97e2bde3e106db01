"""Positions: places in PostgreSQL's log, and what must be remembered with them.

    lsn      everything committed before it has been read
    copied   how far the log was when the copies ended: until there, changes may be of rows that no copy has seen whole;
             null: copies may still be under way
    cuts     tables without a key that were copied again: their changes are skipped while this snapshot had seen them
    recopy   tables without a key whose new copy was under way: it must begin again
    tables   a mark of the tables that were followed: with other ones, some were copied since
    shapes   of each table without a key, a mark of the columns that its copy has
    files    of tables whose copies may be under way, which files have their rows
    forms    of each table with a key, a mark of its key and columns: see alterations
    server   [system identifier, timeline] of the server whose log this is a place of: see timeline
    more     the number of the last sign of life: more is known to come, so each position is unlike the one before,
             also unlike that of a run which died there

A position is what the runner keeps; only `lsn` is always there.  See docs/decisions/030-copy-then-sync.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


def lsn_text(lsn: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """A place in the log as a number, which can be compared."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def mark(texts: Iterable[str]) -> str:
    """A short text that other texts, or the same in another order, do not have."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Cut:
    """A snapshot that a table was read in, as pg_current_snapshot() writes it, and how far the log was by then."""

    snapshot: str
    until: int

    def saw(self, xid: int) -> bool:
        """Whether a transaction that has committed, by its 32-bit number, had done so in this snapshot."""
        low, high, running = self.snapshot.split(":")
        # The log has the low half of the number only; of all numbers that end in it, this is the nearest one.
        ahead = (xid - int(high) + 2**31) % 2**32 - 2**31
        full = int(high) + ahead
        if full >= int(high):
            return False
        return full < int(low) or str(full) not in running.split(",")


@dataclass(frozen=True, slots=True)
class Point:
    """A position, as the follower uses it.  `copied` 0: nothing is left to remember of the copies; None: not known."""

    lsn: int
    copied: int | None = 0
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    recopy: tuple[str, ...] = ()
    tables: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    server: tuple[str, int] | None = None
    signs: int = 0

    def at(self, lsn: int) -> Point:
        """Further on; what only concerns the log before it is forgotten."""
        copied = self.copied if self.copied is None or self.copied > lsn else 0
        cuts = {name: cut for name, cut in self.cuts.items() if cut.until > lsn}
        return replace(self, lsn=max(lsn, self.lsn), copied=copied, cuts=cuts)

    def stored(self) -> dict[str, Any]:
        """As the runner keeps it."""
        out: dict[str, Any] = {"lsn": lsn_text(self.lsn)}
        if self.copied != 0:
            out["copied"] = None if self.copied is None else lsn_text(self.copied)
        if self.cuts:
            out["cuts"] = {name: [cut.snapshot, lsn_text(cut.until)] for name, cut in self.cuts.items()}
        more: dict[str, Any] = {"recopy": list(self.recopy), "tables": self.tables, "shapes": dict(self.shapes)}
        more |= {"forms": dict(self.forms), "files": dict(self.files), "server": list(self.server or ())}
        return out | {name: value for name, value in more.items() if value}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Point:
        """From what the runner kept."""
        copied = stored.get("copied", "0/0")
        cuts = {name: Cut(snapshot, lsn_number(until)) for name, (snapshot, until) in stored.get("cuts", {}).items()}
        return cls(
            lsn_number(stored["lsn"]),
            None if copied is None else lsn_number(copied),
            cuts,
            tuple(stored.get("recopy", ())),
            stored.get("tables", ""),
            stored.get("shapes", {}),
            stored.get("forms", {}),
            stored.get("files", {}),
            (str(stored["server"][0]), int(stored["server"][1])) if stored.get("server") else None,
            stored.get("more", 0),
        )
