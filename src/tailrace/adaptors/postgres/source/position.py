"""Positions: places in PostgreSQL's log, and what must be remembered with them.

    lsn      everything committed before it has been read
    copied   how far the log was when the copies ended: until there, changes may be of rows that no copy has seen whole;
             null: copies may still be under way
    cuts     tables that were copied again from the beginning: changes that the copy's snapshot has seen are skipped
    recopy   tables whose new copy was under way: it must begin again
    tables   a mark of the tables that were followed: if others are followed now, some were copied since
    shapes   of each table without a key, a mark of the columns that its copy has
    files    of tables whose copies may be under way, which files have their rows
    forms    of each table with a key, a mark of its key and columns: see alterations
    server   [system identifier, timeline] of the server whose log this is a place of: see timeline
    more     the number of the last sign of life: more is known to come, so each position differs from the one before,
             also from that of a run which died there

The pipeline stores positions with the commit log.  Only `lsn` is always there.

See docs/decisions/030-copy-then-sync.md.
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
    """A short hash of some texts in their order, by which a position notices a change, such as other followed
    tables."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Cut:
    """The snapshot that a table was read in, as pg_current_snapshot() writes it, and how far the log was by then."""

    snapshot: str
    until: int

    def saw(self, xid: int) -> bool:
        """Whether the snapshot has seen the commit of a transaction.  `xid` is its 32-bit number; it must have
        committed."""
        low, high, running = self.snapshot.split(":")
        # The log has only the low half of the 64-bit number: take the number with this half that is nearest to `high`.
        ahead = (xid - int(high) + 2**31) % 2**32 - 2**31
        full = int(high) + ahead
        if full >= int(high):
            return False
        return full < int(low) or str(full) not in running.split(",")


@dataclass(frozen=True, slots=True)
class Point:
    """A position, as the follower uses it.  `copied` 0: nothing about the copies must be remembered; None: it is not
    known when they ended."""

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
        """The position at a later place in the log, without what concerns only the log before it."""
        copied = self.copied if self.copied is None or self.copied > lsn else 0
        cuts = {name: cut for name, cut in self.cuts.items() if cut.until > lsn}
        return replace(self, lsn=max(lsn, self.lsn), copied=copied, cuts=cuts)

    def stored(self) -> dict[str, Any]:
        """The position as JSON values, as the pipeline stores it."""
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
        """A position from its stored form."""
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
