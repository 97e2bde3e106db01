"""Snapshots: the transactions that a snapshot of the tables sees.  Nothing here blocks writers of other tables.

A server writes a transaction to its log first, and makes it visible a moment later.  So three sets differ:

    visible     the transactions that every snapshot from now on sees: following begins there, before the copy
    begun       the only transactions that a snapshot taken before now may have seen
    cut         exactly the transactions that one snapshot sees

MySQL adds a GTID to `gtid_executed` after its transaction is visible, and has it in `gtid_owned` from before the
transaction is in the log until then.  MariaDB adds it to `gtid_binlog_pos` once the transaction is in the log;
`binlog_snapshot_position` says what a snapshot sees.
"""

from __future__ import annotations

import random
import time
from typing import Any

from tailrace.adaptors.mysql.database import Database, ask, close, flavor_of
from tailrace.adaptors.mysql.errors import LOCKED, code_of
from tailrace.adaptors.mysql.gtid import Executed, GtidSet, executed
from tailrace.errors import Unavailable

SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
TRIES = 50
"""How often `cut` tries to take a snapshot while nothing commits, before it locks the table against its writers.

MariaDB needs no lock: it says what each snapshot sees."""


def visible(connection: Any) -> Executed:
    """Return the transactions that every snapshot from now on sees."""
    if flavor_of(connection) == "mysql":
        return GtidSet(_variable(connection, "gtid_executed"))
    ask(connection, SNAPSHOT)
    found = _snapshot_place(connection)
    ask(connection, "ROLLBACK")
    return found


def begun(connection: Any) -> Any:
    """Return the transactions that a snapshot taken before now may have seen."""
    if flavor_of(connection) == "mariadb":
        return executed("mariadb", _variable(connection, "gtid_binlog_pos"))
    # `gtid_owned` first: a transaction that ends between the two queries is then in both answers, not in neither.
    owned = GtidSet(_without_owners(_variable(connection, "gtid_owned")))
    return owned.joined(GtidSet(_variable(connection, "gtid_executed")))


def logged(connection: Any) -> Executed:
    """Return the transactions that the server has logged, which a log stream will deliver."""
    name = "gtid_executed" if flavor_of(connection) == "mysql" else "gtid_binlog_pos"
    return executed(flavor_of(connection), _variable(connection, name))


def cut(database: Database, connection: Any, table: str, place: Executed, patience: float) -> Executed:
    """Begin a transaction on `connection`, and return exactly the transactions that it sees, which cover `place`.

    Try without a lock first, then, on MySQL, lock the table against writers for a moment.  Raise `Unavailable` after
    `patience` seconds without success."""
    deadline = time.monotonic() + patience
    tries, lockless = 0, flavor_of(connection) == "mariadb"
    while True:
        tries += 1
        quiet = lockless or tries <= TRIES
        found = _quiet_cut(connection) if quiet else _locked_cut(database, connection, table)
        if found is not None and found.covers(place):
            return found
        ask(connection, "ROLLBACK")
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{table} could not be read in one known snapshot within {patience:.0f} s: other transactions hold it"
            )
        time.sleep(random.uniform(0, 0.01))


def _quiet_cut(connection: Any) -> Executed | None:
    if flavor_of(connection) == "mariadb":
        ask(connection, SNAPSHOT)
        return _snapshot_place(connection)
    before = GtidSet(_variable(connection, "gtid_executed"))
    ask(connection, SNAPSHOT)
    after = begun(connection)
    return before if before.covers(after) else None


def _locked_cut(database: Database, connection: Any, table: str) -> Executed | None:
    """Begin the transaction while a second connection locks the table against its writers; None if it gets no lock."""
    beside = database.open()
    try:
        with database.guarded(f"locking {table} for a moment"):
            ask(beside, "SET SESSION lock_wait_timeout = 1")
            try:
                ask(beside, f"LOCK TABLES {table} READ")
            except Exception as error:
                if code_of(error) in LOCKED:
                    return None
                raise
            ask(connection, SNAPSHOT)
            return GtidSet(_variable(connection, "gtid_executed"))
    finally:
        close(beside)


def _snapshot_place(connection: Any) -> Executed:
    status = dict(ask(connection, "SHOW SESSION STATUS LIKE 'binlog_snapshot_%%'"))
    status = {name.lower(): value for name, value in status.items()}
    file, at = status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
    ((text,),) = ask(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, at)
    return executed("mariadb", text or "")


def _variable(connection: Any, name: str) -> str:
    ((value,),) = ask(connection, f"SELECT @@global.{name}")
    return str(value or "")


def _without_owners(text: str) -> str:
    """Remove from each number of a set the thread that owns it: uuid:5#12:6#13 becomes uuid:5:6."""
    parts = []
    for part in filter(None, text.replace("\n", "").split(",")):
        source, *numbers = part.strip().split(":")
        parts.append(":".join([source, *(number.split("#")[0] for number in numbers)]))
    return ",".join(parts)
