"""Lineage: checks that a server has the transactions of a position, and the log after it.

A server that was restored from a backup, or a replica that lagged when it was promoted, may lack transactions that the
pipeline has read.  A server that has purged its log no longer knows what came after the position.  Names of files and
of servers are never compared: any server will do that has every transaction of the position and the log after it.

A server that was restored and has since written more gives the same GTIDs to other transactions.  So `compare` looks up
the transaction that was read last in the server's log: its time of commit must be the one in the position.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from tailrace.adaptors.mysql.database import Database, ask, driver, flavor_of
from tailrace.adaptors.mysql.gtid import DomainPlace, Gtid, executed
from tailrace.adaptors.mysql.source import events
from tailrace.adaptors.mysql.source.log_stream import LogStream
from tailrace.adaptors.mysql.source.position import Point
from tailrace.errors import NotReady, PositionLost

LOOK_SECONDS = 10.0
"""How long `compare` looks for the transaction that was read last."""
MAX_BEATS = 3
"""Heartbeats after which `compare` gives up: an idle server sends one a second, after one for what it skipped."""
REPLICAS_DIFFER = 60
"""Seconds by which MariaDB's servers may differ about a transaction's time: as much as its commit may take."""
AFRESH = "copy the tables afresh: give the pipeline another name, and empty its sinks"


def identify(connection: Any) -> str:
    """Return the server's UUID (MySQL), or its server id (MariaDB)."""
    if flavor_of(connection) == "mysql":
        return str(ask(connection, "SELECT @@global.server_uuid")[0][0])
    return str(ask(connection, "SELECT @@global.server_id")[0][0])


def check(connection: Any, where: str, point: Point) -> str:
    """Return the server's id; raise `PositionLost` if it lacks transactions of the position, or has purged later ones.

    MariaDB reports a purged log only when the stream starts.  `NotReady`: the server is of the other flavor."""
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


def compare(database: Database, point: Point) -> None:
    """Raise `PositionLost` if the log has another transaction under the GTID of the one that was read last."""
    if point.last is None or not point.last[2]:
        return
    source, number, stamp = point.last
    found = _stamp_of(database, point, Gtid(source, number))
    if found is None or not found or abs(found - stamp) <= (REPLICAS_DIFFER if point.flavor == "mariadb" else 0):
        return
    raise PositionLost(
        f"MySQL at {database.where} has another transaction {source}:{number} than the one that the pipeline has read: "
        "it was restored from an older copy, and has gone on since.  What the sinks have may never have happened "
        f"there.  {AFRESH[0].upper()}{AFRESH[1:]}"
    )


def _stamp_of(database: Database, point: Point, gtid: Gtid) -> int | None:
    """Return when a transaction was first committed, by the server's log; None if it is not found there in time."""
    deadline, beats = time.monotonic() + LOOK_SECONDS, 0
    with closing(LogStream(database)) as stream:
        try:
            stream.start(executed(point.flavor, point.gtids).before(gtid))
            while (left := deadline - time.monotonic()) > 0:
                data = stream.read(left)
                beats += data is not None and data[4] == events.HEARTBEAT
                if data is None or beats > MAX_BEATS:
                    return None
                if data[4] in _READ and (begun := _READ[data[4]](data)).gtid == gtid:
                    return begun.stamp
        except driver().Error:  # the log begins after the transaction; the follower's own stream checks what follows
            return None
    return None


_READ = {events.GTID: events.read_gtid, events.MARIADB_GTID: events.read_mariadb_gtid}


def purged_error(where: str, why: str) -> PositionLost:
    """Return the error for a position after which the server has purged its log."""
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
