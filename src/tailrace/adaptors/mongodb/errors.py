"""Errors of MongoDB and its driver, translated into tailrace's errors, each with advice for the operator.

`Unavailable` passes without an operator: no connection, an election, a restart.  `NotReady` needs one: a password, a
right, a server that is no replica set.  `PositionLost`: the oplog no longer has the changes after a position.
"""

from __future__ import annotations

from typing import Any

from tailrace.errors import NotReady, PositionLost, TailraceError, Unavailable

PASSING = frozenset({
    6, 7, 43, 50, 63, 64, 89, 91, 112, 133, 134, 150, 175, 189, 202, 234, 237, 246, 251, 262, 263, 290, 317, 358, 9001,
    10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436,
})  # fmt: skip
"""Codes of errors that pass: network, elections, shutdowns, timeouts, killed cursors and plans, write conflicts."""
UNAUTHORIZED, AUTHENTICATION_FAILED, ATLAS_AUTHENTICATION = 13, 18, 8000
HISTORY_LOST, FATAL_STREAM, CAPPED_POSITION_LOST, BAD_TOKEN = 286, 280, 136, 260
TOO_LARGE_EVENT = 10334
AFRESH = "what changed since is not known. Give the pipeline another name, and it is copied afresh and followed"


def code_of(error: BaseException) -> int:
    """Return the server's code of an error; 0 if the error did not come from the server."""
    return int(getattr(error, "code", None) or 0)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the driver's description of the topology."""
    details = getattr(error, "details", None)
    text = str(details["errmsg"]) if isinstance(details, dict) and details.get("errmsg") else str(error)
    lines = (
        text.partition(", full error:")[0]
        .partition(", Timeout:")[0]
        .partition(" (configured timeouts:")[0]
        .splitlines()
    )
    return lines[0].strip() if lines else type(error).__name__


def failed(error: BaseException, where: str, doing: str, grant: str) -> TailraceError:
    """Return the error that says why a request failed; `grant` is the command that gives the needed rights."""
    import pymongo.errors as driver

    said = f"MongoDB at {where}, {doing}: {first_line(error)}"
    code = code_of(error)
    if code in (HISTORY_LOST, CAPPED_POSITION_LOST):
        return PositionLost(
            f"{said}. The oplog no longer has what came after the pipeline's position; {AFRESH}. A larger oplog keeps "
            "more: db.adminCommand({replSetResizeOplog: 1, size: MEGABYTES, minRetentionHours: 48})"
        )
    if code in (FATAL_STREAM, BAD_TOKEN):
        return PositionLost(
            f"{said}. The oplog does not have the change that was read last: it was restored from a backup, or is "
            f"another one; {AFRESH}"
        )
    if code in (AUTHENTICATION_FAILED, ATLAS_AUTHENTICATION):
        return NotReady(f"{said} check user, password and authSource in the uri")
    if code == UNAUTHORIZED:
        return NotReady(f"{said}; {grant}")
    if _passes(error, code, driver):
        return Unavailable(f"{said}; is it running there, and does it have a primary?")
    return NotReady(said + (f" (code {code})" if code else ""))


def _passes(error: BaseException, code: int, driver: Any) -> bool:
    if isinstance(error, driver.ConfigurationError):
        return False
    return code in PASSING or isinstance(error, driver.ConnectionFailure | driver.ExecutionTimeout)


def reading(user: str) -> str:
    """Return the command that gives a user the rights to read and follow, for errors to advise."""
    return (
        f'db.getSiblingDB("admin").grantRolesToUser("{user}", ["readAnyDatabase", "clusterMonitor"]) lets it read and '
        'follow all databases; for one database: {role: "read", db: "shop"} in place of "readAnyDatabase"'
    )


def writing(user: str) -> str:
    """Return the command that gives a user the rights to write, for errors to advise."""
    return (
        f'db.getSiblingDB("admin").grantRolesToUser("{user}", ["readWriteAnyDatabase"]) lets it write all databases; '
        'it needs {role: "readWrite", db: …} of the databases that it writes, and of the one with the state'
    )
