"""The slot: the replication slot that makes the server keep its log for a pipeline, and its errors."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres.errors import sqlstate
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source.position import lsn_number, lsn_text
from tailrace.errors import NotReady, PositionLost, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

_SLOT = """
    SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status,
           to_jsonb(s) ->> 'invalidation_reason'
    FROM pg_replication_slots s WHERE slot_name = %s
"""
_log = logging.getLogger("tailrace")
NAMED_AFTER = 2.0
"""Seconds after which a warning names the transaction that the server waits for."""
_OLDEST_TRANSACTION = """
    SELECT pid, extract(epoch FROM now() - xact_start)::int FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the server has it."""

    name: str
    plugin: str
    here: bool
    user: int | None
    """The process that reads the slot."""
    confirmed: int
    status: str
    reason: str | None

    @property
    def lost(self) -> bool:
        """Whether the log that the slot should have kept is gone."""
        return self.status == "lost"


def find(connection: Connection[Any], name: str) -> Slot | None:
    """Return the slot with this name; None if there is none."""
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    plugin, here, user, confirmed, status, reason = row
    return Slot(name, plugin or "", bool(here), user, lsn_number(confirmed or "0/0"), status or "", reason)


def ready(connection: Connection[Any], where: str, settings: PostgresSource) -> Slot | None:
    """Return the slot; None if there is none.  Raises `NotReady` or `PositionLost` if it cannot be used."""
    slot = find(connection, settings.slot)
    if slot is None:
        return None
    if slot.plugin != "pgoutput" or not slot.here:
        raise NotReady(
            f"slot {slot.name!r} of PostgreSQL at {where} is for something else (plugin {slot.plugin!r}); "
            "choose another name: slot = '…'"
        )
    if slot.lost:
        how = f"the server removed the log it should have kept ({slot.reason or 'wal_removed'})"
        raise lost(slot.name, where, how, slot.confirmed)
    return slot


def free(connection: Connection[Any], where: str, settings: PostgresSource, seconds: float) -> Slot | None:
    """Return the slot once no process reads it; a killed process may hold it for a moment.  Raises `Unavailable` after
    `seconds`."""
    deadline = time.monotonic() + seconds
    while (slot := ready(connection, where, settings)) is not None and slot.user is not None:
        if time.monotonic() > deadline:
            raise in_use(slot.name, where, slot.user)
        time.sleep(0.1)
    return slot


def create(connection: Connection[Any], where: str, settings: PostgresSource) -> int:
    """Create the slot and return where its log begins.  The server waits for all open transactions to end.

    After two seconds a warning names the oldest of these transactions.  Raises `Unavailable` when patience is over."""
    soon = min(NAMED_AFTER, settings.patience)
    begins = _created(connection, settings.slot, soon)
    if begins is None:
        _log.warning(
            "PostgreSQL at %s %s; waiting up to %g s", where, _held_up(connection, settings), settings.patience
        )
        begins = _created(connection, settings.slot, settings.patience - soon) if settings.patience > soon else None
    if begins is None:
        raise Unavailable(f"PostgreSQL at {where} {_held_up(connection, settings)}")
    return begins


def _created(connection: Connection[Any], slot: str, seconds: float) -> int | None:
    """Create the slot within `seconds`; None if the server still waits for transactions."""
    import psycopg

    connection.execute(f"SET statement_timeout = {max(1, int(seconds * 1000))}")
    try:
        sql = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        row = connection.execute(sql, [slot]).fetchone()
    except psycopg.errors.QueryCanceled:
        return None
    finally:
        connection.execute("RESET statement_timeout")
    assert row is not None
    return lsn_number(row[0])


def _held_up(connection: Connection[Any], settings: PostgresSource) -> str:
    oldest = connection.execute(_OLDEST_TRANSACTION).fetchone()
    blamed = f": pid {oldest[0]} for {oldest[1]} s, SELECT pg_terminate_backend({oldest[0]}) ends it" if oldest else ""
    return f"makes slot {settings.slot!r} only when transactions under way have ended{blamed}"


def in_use(name: str, where: str, pid: int | str) -> Unavailable:
    """The error for a slot that another process reads."""
    return Unavailable(
        f"slot {name!r} of PostgreSQL at {where} is in use by pid {pid}: another run, or another pipeline, which needs "
        f"a slot of its own (slot = '…'); SELECT pg_terminate_backend({pid}) ends the other one"
    )


def lost(name: str, where: str, how: str, position: int | None = None, now: int | None = None) -> PositionLost:
    """The error for changes that are gone and were never read."""
    span = f" from {lsn_text(position)}" if position is not None else ""
    span += f" to {lsn_text(now)}" if now is not None else ""
    return PositionLost(
        f"slot {name!r} of PostgreSQL at {where}: {how}, so changes{span} can no longer be read.  Copy the tables "
        "afresh: give the pipeline another name, and empty its sinks, which may have rows that were deleted meanwhile "
        f"(first: SELECT pg_drop_replication_slot('{name}'); if it is still there); to keep more log, raise "
        "max_slot_wal_keep_size"
    )


def kept(connection: Connection[Any], where: str, settings: PostgresSource, position: int) -> None:
    """Raise `PositionLost` if the slot no longer has the changes after a position."""
    slot = ready(connection, where, settings)
    if slot is None:
        raise lost(settings.slot, where, "it is gone", position)
    if slot.confirmed > position:
        raise lost(settings.slot, where, "it was made again or read by another program", position, slot.confirmed)


def trouble(error: BaseException, settings: PostgresSource, where: str, position: int) -> BaseException:
    """Translate an error of the log stream if it is about the slot; return any other error unchanged."""
    state, text = sqlstate(error), str(error)
    if state == "55006":
        pid = "".join(ch for ch in text.rsplit("PID", 1)[-1] if ch.isdigit())
        return in_use(settings.slot, where, pid or "?")
    if state == "42704" and "replication slot" in text:
        return lost(settings.slot, where, "it is gone", position)
    if "has already been removed" in text or "can no longer get changes" in text or "has been invalidated" in text:
        return lost(settings.slot, where, "the server removed the log it should have kept", position)
    return error
