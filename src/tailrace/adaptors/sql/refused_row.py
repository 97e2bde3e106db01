"""The refused row: finds which row a table refuses, and because of which column."""

from __future__ import annotations

from tailrace.adaptors.sinks.refusal import first_refused
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.merge import Merge
from tailrace.errors import Rejected


def find(connection: SqlConnection, error: BaseException, merge: Merge) -> Rejected:
    """Return an error that names table, column and id of the refused row, found by merging ever fewer of the rows."""
    rows, dialect = merge.rows, merge.dialect
    row, error = first_refused(rows.rows, error, lambda low, high: _attempt(connection, merge, (low, high)))
    column = dialect.blamed_column(error) or _column(connection, merge, row)
    id, detail = _id(connection, merge, row), dialect.detail(error)
    text = (
        f"{merge.target.sql} refuses a row of {rows.namespace}: {'column ' + column + ', ' if column else ''}id {id}: "
    )
    text += dialect.first_line(error) + (f" ({detail})" if detail else "")
    text += _retyped(merge, column) or "; alter the table, or mend the row on its way"
    return Rejected(text, namespace=rows.namespace, id=id)


def _retyped(merge: Merge, column: str) -> str:
    """The advice for a column whose type differs from the source's; "" if it does not."""
    to = merge.target
    given = next((one.types[0] for one in merge.rows.columns if one.name == column), "")
    if column not in to.columns or given in ("", to.columns[column].exact):
        return ""
    order = f"ALTER TABLE {to.sql} {merge.dialect.retype(column, given)}"
    return f"; it is {given} at the source, and {to.columns[column].exact} here: {order}; or mend the row on its way"


def _attempt(connection: SqlConnection, merge: Merge, span: tuple[int, int]) -> BaseException | None:
    """Merge some of the rows, roll back, and return the error; None if there was none."""
    try:
        with connection.transaction(force_rollback=True):
            for sql in merge.statements(span):
                connection.execute(*merge.bound(sql))
    except merge.dialect.errors as error:
        return error
    return None


def _column(connection: SqlConnection, merge: Merge, row: int) -> str:
    """The column that refuses the row's value, found by trying the values one by one in a table of the same types; ""
    if each fits."""
    probe, refused = merge.dialect.probe(merge.target.sql), ""
    with connection.transaction(force_rollback=True):
        connection.execute(probe.create)
        for column in merge.columns:
            into = f"INSERT INTO {probe.name} ({column.sql})"
            sql = f"{into} SELECT {column.value} FROM {merge.origin.sql} WHERE s.n = {row}"
            try:
                with connection.transaction():
                    connection.execute(*merge.bound(sql))
            except merge.dialect.errors:
                refused = column.name
                break
        if probe.drop:
            connection.execute(probe.drop)
    return refused


def _id(connection: SqlConnection, merge: Merge, row: int) -> str:
    staged = [merge.dialect.text_of(merge.staged(n)) for n in merge.rows.id_columns]
    sql = f"SELECT {', '.join(staged)} FROM {merge.origin.sql} WHERE s.n = {row}"
    found = connection.execute(*merge.bound(sql)).fetchone() or ()
    return "\x1f".join(str(value) for value in found)
