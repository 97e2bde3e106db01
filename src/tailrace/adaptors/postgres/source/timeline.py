"""Timeline: whether the server's log has the place that a position names.

A server that was restored from a copy, or a standby that lagged when it was promoted, is behind what was read from the
server before it.  If the follower started from the position, such a server would send nothing, and would forget its own
changes once the follower reports how far it is.  So the follower checks, before it asks for the log:

    the system identifier is another                     it is another cluster
    its log ends before the position                     it was restored from an older copy
    its timeline left the position's before the position it was promoted, or restored to a time, without what was read
"""

from __future__ import annotations

from tailrace.adaptors.postgres.source.log_stream import LogStream, Server
from tailrace.adaptors.postgres.source.position import Point, lsn_text
from tailrace.errors import PositionLost


def check(stream: LogStream, where: str, slot: str, point: Point) -> Server:
    """Return the server if the position is a place in its log; raise `PositionLost` if it is not."""
    server = stream.identify()
    why = _why_not(stream, server, point)
    if why:
        raise PositionLost(
            f"PostgreSQL at {where} is not what the pipeline has read up to {lsn_text(point.lsn)}: {why}.  What the "
            "sinks have of it may never have happened there.  If another server has that log, point the uri at it; "
            "else copy the tables afresh: give the pipeline another name, and empty its sinks (first: SELECT "
            f"pg_drop_replication_slot('{slot}'); if there is one)"
        )
    return server


def _why_not(stream: LogStream, server: Server, point: Point) -> str:
    system, timeline = point.server or (server.system, server.timeline)
    if system != server.system:
        return f"it is another cluster (system identifier {server.system}, not {system})"
    if point.lsn > server.flushed:
        return f"its log ends at {lsn_text(server.flushed)}, so it was restored from an older copy, or lagged behind"
    if timeline == server.timeline:
        return ""
    left = dict(stream.history(server.timeline)).get(timeline) if timeline < server.timeline else None
    if left is None:
        return f"its timeline {server.timeline} did not come from timeline {timeline}"
    if left < point.lsn:
        return f"its timeline {server.timeline} left timeline {timeline} at {lsn_text(left)}, before that place"
    return ""
