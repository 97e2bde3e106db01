"""Cascades: rows that a foreign key deletes or changes.  InnoDB does so below the binlog, which does not log them.

A change of a referenced table may have changed rows of the tables that refer to it; the catalog says which these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.adaptors.mysql import names
from tailrace.adaptors.mysql.database import ask
from tailrace.errors import NotReady

_RULES = """
    SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME
    FROM information_schema.REFERENTIAL_CONSTRAINTS
    WHERE DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
"""


def cascades(connection: Any) -> dict[str, set[str]]:
    """Return, for each referenced table, all tables that its changes may change, directly or through others."""
    direct: dict[str, set[str]] = {}
    for schema, table, its_schema, its_table in ask(connection, _RULES):
        direct.setdefault(names.namespace(schema, table), set()).add(names.namespace(its_schema, its_table))
    return {parent: _reached(direct, parent) for parent in direct}


def _reached(direct: dict[str, set[str]], parent: str) -> set[str]:
    found: set[str] = set()
    left = [parent]
    while left:
        new = direct.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def check(connection: Any, where: str, namespaces: Sequence[str]) -> None:
    """Raise `NotReady` if foreign keys change rows of one of these tables."""
    changed = _of(cascades(connection).values(), namespaces)
    if changed:
        raise NotReady(
            f"MySQL at {where}: foreign keys change rows of {', '.join(changed)} (ON DELETE or ON UPDATE CASCADE, SET "
            "NULL), and no binlog says so; cascades = 'copy' copies these tables again after each change that may have "
            "done so, cascades = 'leave' leaves such rows as they are"
        )


def _of(sets: Iterable[set[str]], namespaces: Sequence[str]) -> list[str]:
    return sorted({name for tables in sets for name in tables} & set(namespaces))
