"""The culprit: which row, and which column of it, a table refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import merge
from tailrace.adaptors.postgres.merge import Origin
from tailrace.adaptors.postgres.target import Target
from tailrace.adaptors.postgres.trouble import first_line
from tailrace.adaptors.postgres.unit import Unit
from tailrace.errors import Rejected

if TYPE_CHECKING:
    from psycopg import Connection


def find(connection: Connection[Any], error: BaseException, unit: Unit, to: Target, where: Origin) -> Rejected:
    """An error that names table, column and id, found by merging fewer and fewer of the rows."""
    low, high = 0, unit.rows
    while high - low > 1:
        middle = (low + high) // 2
        failed = _attempt(connection, unit, to, where, (0, middle))
        if failed is not None:
            error, high = failed, middle
        else:
            low = middle
    column = _diag(error, "column_name") or _column(connection, unit, to, where, low)
    id = _id(connection, unit, where, low)
    detail = _diag(error, "message_detail")
    text = f"{to.sql} refuses a row of {unit.namespace}: {'column ' + column + ', ' if column else ''}id {id}: "
    text += first_line(error) + (f" ({detail})" if detail else "") + "; alter the table, or mend the row on its way"
    return Rejected(text, namespace=unit.namespace, id=id)


def _diag(error: BaseException, name: str) -> str:
    return getattr(getattr(error, "diag", None), name, None) or ""


def _attempt(
    connection: Connection[Any], unit: Unit, to: Target, where: Origin, span: tuple[int, int]
) -> BaseException | None:
    """The error that some of the rows cause; nothing of it stays."""
    import psycopg

    try:
        with connection.transaction(force_rollback=True):
            for sql in merge.statements(unit, to, where, span):
                connection.execute(*merge.bound(sql, where))
    except psycopg.Error as error:
        return error
    return None


def _column(connection: Connection[Any], unit: Unit, to: Target, where: Origin, row: int) -> str:
    """The column whose type a row's value does not fit, tried one by one in a table of the same types."""
    import psycopg

    some = merge.fields(unit, to, where)
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TEMP TABLE tailrace_probe ON COMMIT DROP AS SELECT * FROM {to.sql} WITH NO DATA")
        for field in some:
            into = f"INSERT INTO pg_temp.tailrace_probe ({field.sql})"
            sql = f"{into} SELECT {field.value} FROM {where.sql} WHERE s.n = {row}"
            try:
                with connection.transaction():
                    connection.execute(*merge.bound(sql, where))
            except psycopg.Error:
                return field.name
    return ""


def _id(connection: Connection[Any], unit: Unit, where: Origin, row: int) -> str:
    wanted = [n for n, column in enumerate(unit.columns) if not unit.keys or column.name in unit.keys]
    staged = [f"s.rest[{n + 1}]" if unit.wide and not where.texts else f"s.c{n}::text" for n in wanted]
    sql = f"SELECT {', '.join(staged)} FROM {where.sql} WHERE s.n = {row}"
    found = connection.execute(*merge.bound(sql, where)).fetchone() or ()
    return "\x1f".join(str(value) for value in found)
