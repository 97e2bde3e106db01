"""GTIDs: the transactions that a server has executed, or a pipeline has read, independent of servers and log files.

MySQL numbers transactions for each server that first committed them, and a set lists intervals of numbers:

    3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:8,…

MariaDB numbers them within a domain, so the last transaction of each domain stands for all that came before it:

    0-1-270,1-5-12          domain-server-number
"""

from __future__ import annotations

import struct
import uuid
from typing import Any, NamedTuple, Protocol

from tailrace.errors import NotReady


class Gtid(NamedTuple):
    """The id of one transaction: `source` is the server's UUID (MySQL) or domain-server (MariaDB)."""

    source: str
    number: int


class Executed(Protocol):
    """A set of transactions that were executed, or read.  Callers never compare sets of the two flavors."""

    def copy(self) -> Any:
        """Return an independent set with the same transactions."""

    def add(self, gtid: Gtid) -> None:
        """Add a transaction."""

    def has(self, gtid: Gtid) -> bool:
        """Return whether the set contains a transaction."""

    def covers(self, other: Any) -> bool:
        """Return whether the set contains every transaction of another set of the same flavor."""

    def before(self, gtid: Gtid) -> Any:
        """Return a copy without one transaction, which must be the last that was added of its source."""


class GtidSet:
    """A GTID set of MySQL.  `add` changes the set; every other method leaves it unchanged."""

    def __init__(self, text: str = "") -> None:
        self._intervals: dict[str, list[list[int]]] = {}
        for part in text.replace("\n", "").split(","):
            source, *spans = part.strip().split(":")
            for span in spans:
                if not span[:1].isdigit():
                    raise NotReady(f"the GTID {part.strip()} has a tag, which tailrace does not know; leave tags out")
                first, _, last = span.partition("-")
                self._intervals.setdefault(source.lower(), []).append([int(first), int(last or first)])

    def __str__(self) -> str:
        parts = (":".join([source, *map(_span, spans)]) for source, spans in sorted(self._intervals.items()))
        return ",".join(parts)

    def copy(self) -> GtidSet:
        """Return an independent set with the same transactions."""
        made = GtidSet()
        made._intervals = {source: [list(span) for span in spans] for source, spans in self._intervals.items()}
        return made

    def add(self, gtid: Gtid) -> None:
        """Add a transaction."""
        self._add(gtid.source, gtid.number, gtid.number)

    def _add(self, source: str, first: int, last: int) -> None:
        spans = self._intervals.setdefault(source, [])
        if spans and spans[-1][0] <= first <= spans[-1][1] + 1:  # nearly always
            spans[-1][1] = max(spans[-1][1], last)
            return
        spans.append([first, last])
        spans.sort()
        joined = [spans[0]]
        for span in spans[1:]:
            if span[0] <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], span[1])
            else:
                joined.append(span)
        self._intervals[source] = joined

    def has(self, gtid: Gtid) -> bool:
        """Return whether the set contains a transaction."""
        return any(first <= gtid.number <= last for first, last in self._intervals.get(gtid.source, ()))

    def before(self, gtid: Gtid) -> GtidSet:
        """Return a copy without one transaction."""
        made = self.copy()
        spans = made._intervals.pop(gtid.source, [])
        for first, last in spans:
            for low, high in ((first, min(last, gtid.number - 1)), (max(first, gtid.number + 1), last)):
                if low <= high:
                    made._add(gtid.source, low, high)
        return made

    def covers(self, other: GtidSet) -> bool:
        """Return whether the set contains every transaction of another set."""
        return all(
            any(first <= span[0] and span[1] <= last for first, last in self._intervals.get(source, ()))
            for source, spans in other._intervals.items()
            for span in spans
        )

    def joined(self, other: GtidSet) -> GtidSet:
        """Return the union of both sets."""
        made = self.copy()
        for source, spans in other._intervals.items():
            for first, last in spans:
                made._add(source, first, last)
        return made

    def encoded(self) -> bytes:
        """Return the set as COM_BINLOG_DUMP_GTID encodes it."""
        out = [struct.pack("<Q", len(self._intervals))]
        for source, spans in sorted(self._intervals.items()):
            out += [uuid.UUID(source).bytes, struct.pack("<Q", len(spans))]
            out += [struct.pack("<QQ", first, last + 1) for first, last in spans]
        return b"".join(out)


class DomainPlace:
    """A GTID position of MariaDB: the last transaction of each domain.  Only `add` changes it."""

    def __init__(self, text: str = "") -> None:
        self._last: dict[str, tuple[str, int]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            domain, server, number = part.split("-")
            self._last[domain] = server, int(number)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))

    def copy(self) -> DomainPlace:
        """Return an independent position at the same place."""
        made = DomainPlace()
        made._last = dict(self._last)
        return made

    def add(self, gtid: Gtid) -> None:
        """Add a transaction, which becomes the last of its domain."""
        domain, server = gtid.source.split("-")
        self._last[domain] = server, gtid.number

    def has(self, gtid: Gtid) -> bool:
        """Return whether a transaction is the last of its domain, or one before that."""
        return gtid.number <= self._last.get(gtid.source.split("-")[0], ("", -1))[1]

    def covers(self, other: DomainPlace) -> bool:
        """Return whether another MariaDB position is, in each of its domains, at this one or before it."""
        return all(number <= self._last.get(domain, ("", -1))[1] for domain, (_, number) in other._last.items())

    def before(self, gtid: Gtid) -> DomainPlace:
        """Return the position just before a transaction; without the transaction's domain if it is the first there."""
        made, (domain, server) = self.copy(), gtid.source.split("-")
        if gtid.number > 1:
            made._last[domain] = server, gtid.number - 1
        else:
            made._last.pop(domain, None)
        return made

    def gtids(self) -> list[Gtid]:
        """Return the last transaction of each domain."""
        return [Gtid(f"{domain}-{server}", number) for domain, (server, number) in self._last.items()]


def _span(span: list[int]) -> str:
    first, last = span
    return str(first) if first == last else f"{first}-{last}"


def executed(flavor: str, text: str) -> Executed:
    """Parse the GTIDs that a server of this flavor reports."""
    return DomainPlace(text) if flavor == "mariadb" else GtidSet(text)
