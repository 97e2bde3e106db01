"""The change stream: one cursor on the server, which the follower reads batch by batch.

The driver's own change stream resumes silently after an error.  This one raises the error, because the follower must
know of it, and gives the resume token after each batch, also after an empty one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.source.documents import decoded_one
from tailrace.adaptors.mongodb.source.position import Point

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

SPLITS = ((6, 0, 9), (7, 0, 0))
"""The first versions that split events over 16 MB: of the series 6.0, and of all later series."""
IMAGES = (6, 0, 0)
UNUSED = [
    "updateDescription.updatedFields",
    "updateDescription.truncatedArrays",
    "updateDescription.disambiguatedPaths",
]
"""Fields of an event that the follower does not need beside the whole document, and that may be as large."""


class StreamBatch(NamedTuple):
    """Some events with their sizes in bytes, and the resume token after them.

    `ended`: the server has closed the stream after an `invalidate`."""

    events: list[tuple[dict[str, Any], int]]
    token: str
    ended: bool


def splits(version: tuple[int, ...]) -> bool:
    """Return whether a server of this version splits events over 16 MB."""
    return version >= SPLITS[1] or (version[:2] == (6, 0) and version >= SPLITS[0])


class ChangeStream:
    """The events after a position, of one database or of all."""

    def __init__(self, deployment: Deployment, point: Point, *, images: bool, rows: int) -> None:
        from bson import Timestamp
        from bson.codec_options import CodecOptions
        from bson.raw_bson import RawBSONDocument

        self._deployment, self._rows = deployment, rows
        self._raw = CodecOptions(document_class=RawBSONDocument)
        self._database = deployment.database or "admin"
        self._session: ClientSession | None = None
        self._cursor = 0
        where = (
            {"startAfter": {"_data": point.token}} if point.token else {"startAtOperationTime": Timestamp(*point.time)}
        )
        stage: dict[str, Any] = {"fullDocument": "updateLookup", **where}
        if deployment.database is None:
            stage["allChangesForCluster"] = True
        if images and deployment.version >= IMAGES:
            stage["fullDocumentBeforeChange"] = "whenAvailable"
        self._pipeline: list[dict[str, Any]] = [{"$changeStream": stage}, {"$unset": UNUSED}]
        if splits(deployment.version):
            self._pipeline.append({"$changeStreamSplitLargeEvent": {}})

    def open(self) -> None:
        """Open the cursor, without reading an event."""
        with self._deployment.guarded("following its changes"):
            self._session = self._deployment.client.start_session()
            answer = self._command(
                {
                    "aggregate": 1,
                    "pipeline": self._pipeline,
                    "cursor": {"batchSize": 0},
                    "readConcern": {"level": "majority"},
                }
            )
        self._cursor = answer["cursor"]["id"]

    def next(self, wait_ms: int) -> StreamBatch:
        """Return the next events; if there are none, wait up to `wait_ms` milliseconds.  Raise the driver's errors."""
        from bson import Int64

        more = {
            "getMore": Int64(self._cursor),
            "collection": "$cmd.aggregate",
            "batchSize": self._rows,
            "maxTimeMS": wait_ms,
        }
        cursor = self._command(more)["cursor"]
        events = [(decoded_one("a change", raw), len(raw)) for raw in (bytes(one.raw) for one in cursor["nextBatch"])]
        self._cursor = cursor["id"]
        return StreamBatch(events, str(cursor["postBatchResumeToken"]["_data"]), not self._cursor)

    def _command(self, command: dict[str, Any]) -> Mapping[str, Any]:
        database = self._deployment.client[self._database]
        return database.command(command, codec_options=self._raw, session=self._session)

    def close(self) -> None:
        """Close the cursor on the server, and the session."""
        from pymongo.errors import PyMongoError

        if self._session is None:
            return
        with contextlib.suppress(PyMongoError):
            if self._cursor:
                self._command({"killCursors": "$cmd.aggregate", "cursors": [self._cursor]})
        with contextlib.suppress(PyMongoError):
            self._session.end_session()
        self._session, self._cursor = None, 0
