"""Side effects: the names through which a logged statement may change tables that it does not name.

A session may set binlog_format = STATEMENT for itself.  The binlog then has its statements in place of rows, and does
not say what triggers, functions and foreign keys did, nor whose rows a view shows.  The server's catalog names these,
as far as the user may see them."""

from __future__ import annotations

from typing import Any

from tailrace.adaptors.mysql.catalog import SYSTEM
from tailrace.adaptors.mysql.database import ask

_NAMES = f"""
    SELECT EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA NOT IN {SYSTEM}
    UNION SELECT ROUTINE_NAME FROM information_schema.ROUTINES
        WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA NOT IN {SYSTEM}
    UNION SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA NOT IN {SYSTEM}
    UNION SELECT REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
"""


def far_reaching(connection: Any) -> frozenset[str]:
    """Return the names of tables with triggers, of referenced tables, of functions and of views, in lower case."""
    return frozenset(name.lower() for (name,) in ask(connection, _NAMES))
