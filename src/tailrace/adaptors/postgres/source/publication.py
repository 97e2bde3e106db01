"""The publication: which tables the server sends the changes of.

It has only the tables that are followed.  With a publication of all tables the server would refuse updates of every
table without a key, followed or not.  An operator may have made the publication; the follower then adds the followed
tables that it lacks, and sets publish_via_partition_root if one of them is partitioned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import catalog, names
from tailrace.adaptors.postgres.catalog import Identity
from tailrace.adaptors.postgres.errors import first_line, sqlstate
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.errors import NotReady, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

_HAS = """
    SELECT c.oid FROM pg_class c, pg_publication p WHERE p.pubname = %s AND c.oid = ANY (%s) AND (
        p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
        OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace))
"""
_PUBLISHED = """
    SELECT asked.n, mine.attnames, mine.condition {asked}
    JOIN pg_publication p ON p.pubname = {name}
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
    CROSS JOIN LATERAL (
        SELECT array_agg(a.attname::text ORDER BY a.attnum), pg_get_expr(r.prqual, c.oid) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND CASE WHEN r.prattrs IS NOT NULL THEN a.attnum = ANY (r.prattrs::int2[])
                   ELSE a.attgenerated = '' OR to_jsonb(p) ->> 'pubgencols' = a.attgenerated::text END
    ) AS mine(attnames, condition)
    WHERE p.puballtables OR r.oid IS NOT NULL
        OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace)
"""
_JOINED = """
    SELECT max(age) FROM (
        SELECT age(p.xmin) FROM pg_publication p WHERE p.pubname = %(name)s AND p.puballtables
        UNION ALL
        SELECT age(r.xmin) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
        WHERE p.pubname = %(name)s AND r.prrelid = %(oid)s
        UNION ALL
        SELECT age(n.xmin) FROM pg_publication_namespace n JOIN pg_publication p ON p.oid = n.pnpubid
        JOIN pg_class c ON c.relnamespace = n.pnnspid WHERE p.pubname = %(name)s AND c.oid = %(oid)s) AS ages
"""
_WRITING = """
    SELECT DISTINCT writer.virtualtransaction, writer.pid FROM pg_locks held
    JOIN pg_locks writer USING (virtualtransaction)
    WHERE held.locktype = 'relation' AND held.granted AND held.mode LIKE '%%Exclusive%%'
      AND held.relation IN (SELECT %(oid)s::oid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid))
      AND writer.locktype = 'transactionid' AND writer.granted AND writer.mode = 'ExclusiveLock'
      AND age(writer.transactionid) > %(age)s AND writer.pid IS DISTINCT FROM pg_backend_pid()
"""
TABLES_PER_STATEMENT = 500
"""The most tables that one statement adds to a publication; the statement locks each of them."""
GONE, ALREADY = ("42P01", "3F000"), "42710"
"""SQLSTATEs of a table or schema that does not exist, and of an object that exists already."""

Published = tuple[list[str] | None, str | None]
"""The columns that a publication has of a table, and the condition that its rows must meet.  (None, None): the
publication does not have the table."""


_BUSY = """
    SELECT DISTINCT held.relation FROM pg_locks held JOIN pg_locks writer USING (virtualtransaction)
    WHERE held.locktype = 'relation' AND held.granted AND held.mode LIKE '%Exclusive%'
      AND writer.locktype = 'transactionid' AND writer.granted AND writer.pid IS DISTINCT FROM pg_backend_pid()
"""


def published(connection: Connection[Any], name: str, namespace: str) -> Published:
    """Return what a PostgreSQL publication has of a table."""
    return published_each(connection, name, [namespace]).get(namespace, (None, None))


def published_each(connection: Connection[Any], name: str, namespaces: Sequence[str]) -> dict[str, Published]:
    """Return what a publication has of each of these tables that is in it, by one query."""
    # Not the view pg_publication_tables: it waits for a session that alters a table, and fails if a table is dropped.
    sql = _PUBLISHED.format(name=names.literal(name).replace("%", "%%"), asked=catalog.ASKED)
    return {table: (columns, condition) for table, columns, condition in catalog.each(connection, sql, namespaces)}


def published_sql(name: str, namespace: str) -> str:
    """The query for what a publication has of one table, without parameters: its number, the columns and the
    condition."""
    tables = (f"ARRAY[{names.literal(part)}]" for part in names.parts(namespace))
    return _PUBLISHED.format(name=names.literal(name), asked=catalog.ASKED.replace("%s", "{}").format(*tables))


def publish(connection: Connection[Any], settings: PostgresSource, tables: Sequence[Identity]) -> None:
    """Make the server send the changes of these tables, as far as they exist: set replica identities, create the
    publication, add tables.  A second call changes nothing."""
    name = settings.published
    _identify(connection, settings, tables)
    found = connection.execute("SELECT pubviaroot FROM pg_publication WHERE pubname = %s", [name]).fetchone()
    if found is None:
        _create(connection, name, tables[:TABLES_PER_STATEMENT])
    elif not found[0] and any(table.partitioned for table in tables):
        sql = f"ALTER PUBLICATION {names.quote(name)} SET (publish_via_partition_root = true)"
        _do(connection, sql, "publishing partitioned tables as one")
    lacking = lacks(connection, name, tables)
    for start in range(0, len(lacking), TABLES_PER_STATEMENT):
        _add(connection, name, lacking[start : start + TABLES_PER_STATEMENT])


def _add(connection: Connection[Any], name: str, tables: Sequence[Identity]) -> None:
    """Add tables to a publication.  One that does not exist, or is in it already, does not keep out the others."""
    import psycopg

    sql = f"ALTER PUBLICATION {names.quote(name)} ADD TABLE {', '.join(table.sql for table in tables)}"
    try:
        _do(connection, sql, f"adding {len(tables)} tables to publication {name!r}")
    except psycopg.Error as error:
        if sqlstate(error) not in (*GONE, ALREADY):
            raise
        half = len(tables) // 2
        if half:
            _add(connection, name, tables[:half])
            _add(connection, name, tables[half:])


def lacks(connection: Connection[Any], name: str, tables: Sequence[Identity]) -> list[Identity]:
    """Return the tables among these that a publication does not have."""
    # Not the view pg_publication_tables: it waits for a session that alters a table.
    has = {oid for (oid,) in connection.execute(_HAS, [name, [table.oid for table in tables]]).fetchall()}
    return [table for table in tables if table.oid not in has]


def _create(connection: Connection[Any], name: str, tables: Sequence[Identity]) -> None:
    """Create a publication of these tables; of none if one of them does not exist."""
    import psycopg

    options = "publish_via_partition_root = true"
    if connection.info.server_version >= 180000:
        options += ", publish_generated_columns = stored"
    of = f" FOR TABLE {', '.join(table.sql for table in tables)}" if tables else ""
    try:
        order = f"CREATE PUBLICATION {names.quote(name)}{of} WITH ({options})"
        _do(connection, order, f"creating publication {name!r}")
    except psycopg.errors.DuplicateObject:
        return
    except psycopg.Error as error:
        if sqlstate(error) not in GONE or not tables:
            raise
        _create(connection, name, ())


def _identify(connection: Connection[Any], settings: PostgresSource, tables: Sequence[Identity]) -> None:
    """Give tables the replica identity that they need, or raise `NotReady`: once a table is published, the server
    refuses updates and deletes that it could not send."""
    import psycopg

    for order in check_identities(connection, settings, tables):
        try:
            _do(connection, order, "setting a replica identity")
        except psycopg.Error as error:
            if sqlstate(error) not in GONE:
                raise


def check_identities(connection: Connection[Any], settings: PostgresSource, tables: Sequence[Identity]) -> list[str]:
    """Return the statements that must run so that all tables can be followed.  Raises `NotReady` if the user must run
    them."""
    nameless = [table for table in tables if not table.enough]
    orders = [f"ALTER TABLE {leaf} REPLICA IDENTITY FULL;" for table in nameless for leaf in _places(connection, table)]
    if orders and settings.identity == "ask":
        which = ", ".join(table.namespace for table in nameless[:10]) + (", …" if len(nameless) > 10 else "")
        raise NotReady(
            f"{which}: no primary key, so PostgreSQL would refuse updates and deletes there once it is followed.  Give "
            f"it a key, or leave it out of the namespace, or: {' '.join(orders[:10])}  (identity = 'full' does that)"
        )
    return orders


def _places(connection: Connection[Any], table: Identity) -> list[str]:
    """The names of a table and its partitions in SQL."""
    sql = """SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid))"""
    return [names.quote(schema, name) for schema, name in connection.execute(sql, {"oid": table.oid}).fetchall()]


def _do(connection: Connection[Any], sql: str, doing: str) -> None:
    """Execute a statement for which the user may lack the right.  The error then says what a user with the right must
    run."""
    import psycopg

    try:
        connection.execute(sql)
    except psycopg.Error as error:
        if sqlstate(error) != "42501":
            raise
        raise NotReady(f"{doing}: {first_line(error)}; as its owner or a superuser: {sql};") from None


def written_now(connection: Connection[Any]) -> set[int]:
    """Return the oids of the tables that open transactions have written to.  The publication of any other table needs
    no wait."""
    return {oid for (oid,) in connection.execute(_BUSY).fetchall()}


def wait_for_writers(connection: Connection[Any], name: str, table: Identity, patience: float) -> None:
    """Wait for transactions that wrote to a table before it was published.  The log does not have their changes, so a
    copy must not begin before they end.  Raises `Unavailable` after `patience` seconds."""
    joined = connection.execute(_JOINED, {"name": name, "oid": table.oid}).fetchone()
    if joined is None or joined[0] is None:
        return
    deadline = time.monotonic() + patience
    asked = {"oid": table.oid, "age": joined[0]}
    while writing := connection.execute(_WRITING, asked).fetchall():
        if time.monotonic() > deadline:
            pids = ", ".join(str(pid) for _, pid in writing)
            raise Unavailable(
                f"{table.namespace} cannot be copied before a transaction ends that wrote to it before it was "
                f"published: pid {pids}; end it, or: SELECT pg_terminate_backend({writing[0][1]});"
            )
        time.sleep(0.05)
        asked["age"] = (connection.execute(_JOINED, {"name": name, "oid": table.oid}).fetchone() or (0,))[0]
