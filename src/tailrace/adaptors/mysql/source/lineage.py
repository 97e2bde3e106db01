"""Lineage: whether the server that answers still has the place in its log that a position names.

A server that was restored from a copy, or a replica that lagged when it was promoted, is behind what was read of the
one before it; and one that has purged its log cannot say what came after the position.  Names of files and of servers
are never compared: a server that has every transaction of the position, and the log after it, will do.
"""

from __future__ import annotations

from typing import Any

from tailrace.adaptors.mysql.database import ask, flavor_of
from tailrace.adaptors.mysql.gtid import DomainPlace, Gtid
from tailrace.adaptors.mysql.source.position import Point
from tailrace.errors import NotReady, PositionLost

AFRESH = "copy the tables afresh: give the pipeline another name, and empty its sinks"


def identify(connection: Any) -> str:
    """The server's own name for itself."""
    if flavor_of(connection) == "mysql":
        return str(ask(connection, "SELECT @@global.server_uuid")[0][0])
    return str(ask(connection, "SELECT @@global.server_id")[0][0])


def check(connection: Any, where: str, point: Point) -> str:
    """Which server this is, if it has the position; `PositionLost` if it does not, or not what came after it."""
    flavor = flavor_of(connection)
    if flavor != point.flavor:
        raise NotReady(f"MySQL at {where} is {flavor}, and the pipeline has read a {point.flavor}; {AFRESH}")
    lacking = _lacking(connection, point)
    if lacking:
        raise PositionLost(
            f"MySQL at {where} has never executed {lacking}, which the pipeline has read: it was restored from an "
            "older copy, or lagged when it was promoted.  What the sinks have of it may never have happened there.  If "
            f"another server has those transactions, point the uri at it; else {AFRESH}"
        )
    if flavor == "mysql":
        ((purged,),) = ask(connection, "SELECT GTID_SUBTRACT(@@global.gtid_purged, %s)", point.gtids)
        if purged:
            raise purged_error(where, f"it has purged {purged}, which the pipeline has not read")
    return identify(connection)


def purged_error(where: str, why: str) -> PositionLost:
    """The log after a position is gone."""
    return PositionLost(
        f"MySQL at {where} no longer has the binlog that the pipeline needs: {why}.  If another server still has it, "
        f"point the uri at that one; else {AFRESH}, and let the server keep its log for longer "
        "(SET PERSIST binlog_expire_logs_seconds = 604800; in MariaDB SET GLOBAL expire_logs_days = 7;)"
    )


def _lacking(connection: Any, point: Point) -> str:
    if point.flavor == "mysql":
        ((lacking,),) = ask(connection, "SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", point.gtids)
        return str(lacking or "").replace("\n", "")
    state, applied = ask(connection, "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos")[0]
    last: dict[str, int] = {}
    for text in (state, applied):
        for gtid in _each(text or ""):
            last[gtid.source] = max(last.get(gtid.source, 0), gtid.number)
    missing = [gtid for gtid in DomainPlace(point.gtids).gtids() if last.get(gtid.source, -1) < gtid.number]
    return ",".join(f"{gtid.source}-{gtid.number}" for gtid in missing)


def _each(text: str) -> list[Gtid]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        source, _, number = part.rpartition("-")
        found.append(Gtid(source, int(number)))
    return found
