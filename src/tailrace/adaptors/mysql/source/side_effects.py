"""Side effects: names by which a statement of the log may change tables that it does not name.

With binlog_format = ROW statements have no rows to tell, and with STATEMENT, which a session may choose for itself, the
log does not say what a trigger, a function or a foreign key did, nor of which table a view shows the rows.  The
server's catalog does, as far as the user may see it."""

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
    """The names of tables with triggers, of tables that others refer to, of functions and of views, in lower case."""
    return frozenset(name.lower() for (name,) in ask(connection, _NAMES))
