"""Positions: which transactions of the binlog were read, and what must be remembered with them.

    flavor    "mysql" or "mariadb": how the GTIDs are written
    gtids     every transaction that was read
    last      the transaction that was read last: its source, its number, and when it was committed first
    server    the UUID of the server that it was read from; another one that has the GTIDs will do
    copied    what a copy may have seen of tables without a key: a transaction among these may be in it already;
              null: copies may still be under way
    cuts      tables that the follower copied in one snapshot: what this had seen of them is skipped
    recopy    tables whose copy by the follower was under way: it must begin again
    tables    a mark of the tables that were followed: with other ones, some were copied since
    keys      the key columns of each table that has some: with others, rows have other ids
    appeared, altered    tables that must be copied before the log goes on
    dropped   tables that were dropped: one of that name is another one
    lost      columns that were dropped or renamed since their table was emptied: sinks may have values of them
    prepared  XA transactions that were prepared and are not decided, with the tables they changed
    more      the number of the last sign of life: more is known to come, so each position is unlike the one before

See docs/decisions/030-copy-then-sync.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.adaptors.mysql.gtid import Executed, executed


def mark(texts: Iterable[str]) -> str:
    """A short text that other texts, or the same in another order, do not have."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Point:
    """A position, as the follower uses it.  `copied` "": nothing is left to remember of the copies; None: not known."""

    flavor: str
    gtids: str
    server: str = ""
    copied: str | None = ""
    cuts: Mapping[str, str] = field(default_factory=dict)
    recopy: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    lost: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prepared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: str = ""
    last: tuple[str, int, int] | None = None
    appeared: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    signs: int = 0

    def at(self, place: Executed) -> Point:
        """Further on; what only concerns the log before it is forgotten."""
        copied, cuts = self.copied, self.cuts
        if copied and place.covers(executed(self.flavor, copied)):
            copied = ""
        if cuts:
            cuts = {name: cut for name, cut in cuts.items() if not place.covers(executed(self.flavor, cut))}
        return replace(self, gtids=str(place), copied=copied, cuts=cuts)

    def stored(self) -> dict[str, Any]:
        """As the runner keeps it."""
        out: dict[str, Any] = {"flavor": self.flavor, "gtids": self.gtids}
        if self.copied != "":
            out["copied"] = self.copied
        more: dict[str, Any] = {
            "server": self.server,
            "tables": self.tables,
            "last": list(self.last or ()),
            "appeared": list(self.appeared),
            "altered": list(self.altered),
            "cuts": dict(self.cuts),
            "recopy": list(self.recopy),
            "keys": {name: list(keys) for name, keys in self.keys.items()},
            "dropped": list(self.dropped),
            "lost": {name: list(columns) for name, columns in self.lost.items()},
            "prepared": {name: list(tables) for name, tables in self.prepared.items()},
        }
        return out | {name: value for name, value in more.items() if value}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Point:
        """From what the runner kept."""
        return cls(
            stored["flavor"],
            stored["gtids"],
            stored.get("server", ""),
            stored.get("copied", ""),
            stored.get("cuts", {}),
            tuple(stored.get("recopy", ())),
            {name: tuple(keys) for name, keys in stored.get("keys", {}).items()},
            tuple(stored.get("dropped", ())),
            {name: tuple(columns) for name, columns in stored.get("lost", {}).items()},
            {name: tuple(tables) for name, tables in stored.get("prepared", {}).items()},
            stored.get("tables", ""),
            tuple(stored["last"]) if "last" in stored else None,
            tuple(stored.get("appeared", ())),
            tuple(stored.get("altered", ())),
            stored.get("more", 0),
        )
