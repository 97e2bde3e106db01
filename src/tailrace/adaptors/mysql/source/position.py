"""Positions: the transactions of the binlog that were read, and what the follower must remember with them.

    flavor    "mysql" or "mariadb": how the GTIDs are written
    gtids     every transaction that was read
    last      the transaction that was read last: its source, its number, and when it was first committed
    server    the id of the server that the log was read from; another server that has the GTIDs will do
    copied    transactions that the pipeline's copies may have seen: a table without a key that one of these changed
              is copied again; null: copies may still be running
    cuts      for each table that the follower copied itself: the transactions that its snapshot had seen, whose
              changes of this table are skipped
    recopy    tables that the follower was copying: a restarted follower copies them from the beginning
    tables    a hash of the followed tables' names: if it differs, some tables were copied in between
    keys      the key columns of each table that has a key: if they change, rows get other ids
    appeared, altered    tables that the pipeline must copy before the follower reads on
    dropped   tables that were dropped: a later table of that name is another table
    lost      columns that were dropped, renamed or redefined since their table was emptied: sinks may still have their
              values
    incident  the last change that the server could not log and that has no GTID (MariaDB): its place in the binlog
    prepared  XA transactions that are prepared and not decided, each with the tables that it changed
    more      a counter in signs of life, which makes each position differ from the one before: the log goes on

See docs/decisions/030-copy-then-sync.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.adaptors.mysql.gtid import Executed, executed


def mark(texts: Iterable[str]) -> str:
    """Return a short hash of some texts in their order, by which a position notices that other tables are followed."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Point:
    """A position, as the follower uses it.

    `copied` is "" once the log is read past all copies, and None if it is not known yet what the copies have seen."""

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
    incident: str = ""

    def at(self, place: Executed) -> Point:
        """Return this point moved to `place`, without the parts of `copied` and `cuts` that lie before it."""
        copied, cuts = self.copied, self.cuts
        if copied and place.covers(executed(self.flavor, copied)):
            copied = ""
        if cuts:
            cuts = {name: cut for name, cut in cuts.items() if not place.covers(executed(self.flavor, cut))}
        return replace(self, gtids=str(place), copied=copied, cuts=cuts)

    def stored(self) -> dict[str, Any]:
        """Return the position as JSON values, which the pipeline stores."""
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
            "incident": self.incident,
            "prepared": {name: list(tables) for name, tables in self.prepared.items()},
        }
        return out | {name: value for name, value in more.items() if value}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Point:
        """Make a point from what `stored` returned."""
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
            stored.get("incident", ""),
        )
