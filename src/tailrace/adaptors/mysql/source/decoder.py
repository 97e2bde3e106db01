"""The decoder: turns the binlog's events into the rows and statements of each transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailrace.adaptors.mysql.source import events
from tailrace.adaptors.mysql.source.events import HEADER, Begun, TableMap
from tailrace.adaptors.mysql.source.statements import Statement, read_statement
from tailrace.adaptors.mysql.source.transaction import Collected, Referenced
from tailrace.errors import NotReady

_PASSED = {events.ROTATE, events.FORMAT, events.HEARTBEAT, *events.SILENT}
MOST_TABLES = 20_000
"""The most descriptions of tables that the decoder keeps, so that it seldom decodes one twice."""


class Target(Protocol):
    """Receives what the decoder reads: tables, statements, and the ends of transactions."""

    def describe(self, table: TableMap) -> Referenced | None:
        """Take a table's description; return where to feed its rows events, or None if its changes do not matter."""

    def statement(self, statement: Statement) -> None:
        """Take a statement that may concern tables, once all rows before it are fed."""

    def prepared(self, xid: str, *, one_phase: bool) -> None:
        """Take the end of an XA transaction, which commits now if `one_phase`, else is decided later."""

    def undone(self) -> None:
        """Take a rollback of a transaction or of a part of it, which left changes of non-transactional tables."""

    def incident(self, end: int) -> None:
        """Take that the server could not log a change; `end` is where the event ends in its file of the binlog."""

    def committed(self, begun: Begun) -> None:
        """Take the end of a transaction."""


class Decoder:
    """Decodes events and passes tables, statements and ends of transactions to a target."""

    def __init__(self, target: Target, collected: Collected, flavor: str) -> None:
        self._target, self._collected, self._mariadb = target, collected, flavor == "mariadb"
        self._begun: Begun | None = None
        self._grouped = False
        """Whether an explicit end of the transaction follows; otherwise its first statement ends it."""
        self._xid = ""
        self._described: dict[bytes, Referenced | None] = {}
        self._tables: dict[int, Referenced | None] = {}
        self._do: dict[int, Callable[[bytes], None]] = {
            events.GTID: self._begin,
            events.ANONYMOUS_GTID: self._anonymous,
            events.GTID_TAGGED: self._tagged,
            events.MARIADB_GTID: self._begin_mariadb,
            events.QUERY: self._query,
            events.QUERY_COMPRESSED: self._query,
            events.LOAD_QUERY: self._query,
            events.INCIDENT: self._incident,
            events.XID: self._commit,
            events.XA_PREPARE: self._prepare,
            events.TABLE_MAP: self._table_map,
            events.PAYLOAD: self._payload,
            events.PARTIAL_UPDATE: self._partial,
            **dict.fromkeys(events.ROWS - {events.PARTIAL_UPDATE}, self._rows),
        }

    @property
    def between(self) -> bool:
        """Whether no transaction is open."""
        return self._begun is None

    def feed(self, data: bytes) -> None:
        """Decode one event; raise `NotReady` for a kind that is unknown and may not be ignored."""
        do = self._do.get(data[4])
        if do is not None:
            do(data)
        elif data[4] not in _PASSED and not data[17] & events.IGNORABLE:
            raise NotReady(
                f"the binlog has an event of kind {data[4]}, which this version of tailrace does not know, so a change "
                "may be lost; a newer one may know it, or else the server's version is not supported yet"
            )

    def renew(self) -> None:
        """Forget the descriptions of tables, so that the target is asked about each of them again."""
        self._described.clear()

    # -- transactions
    def _start(self, data: bytes, begun: Begun, *, grouped: bool) -> None:
        self._begun, self._grouped, self._xid = begun, grouped, ""
        self._tables.clear()
        self._collected.begin(begun.gtid, int.from_bytes(data[:4], "little") * 1000)

    def _begin(self, data: bytes) -> None:
        self._start(data, events.read_gtid(data), grouped=False)

    def _begin_mariadb(self, data: bytes) -> None:
        begun = events.read_mariadb_gtid(data)
        self._start(data, begun, grouped=not begun.flags & events.STANDALONE)
        if begun.flags & events.PREPARED:
            self._collected.undecided = True

    def _anonymous(self, data: bytes) -> None:
        raise NotReady(
            "the binlog has transactions without a GTID, so no position can name them; "
            "SET GLOBAL gtid_mode = ON, and copy the tables afresh under another pipeline name"
        )

    def _tagged(self, data: bytes) -> None:
        raise NotReady("the binlog has GTIDs with a tag, which are not supported: SET SESSION gtid_next = 'AUTOMATIC'")

    def _commit(self, data: bytes | None = None) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._target.committed(begun)

    def _prepare(self, data: bytes) -> None:
        self._target.prepared(self._xid or _xid_of(data), one_phase=bool(data[HEADER]))
        self._commit()

    def _payload(self, data: bytes) -> None:
        for event in events.read_payload(data):
            self.feed(event)

    # -- statements
    def _query(self, data: bytes) -> None:
        schema, sql = events.read_query(data)
        first = sql[:9].upper()
        if sql == "BEGIN":
            self._grouped = True
        elif sql == "COMMIT":
            self._commit()
        elif first.startswith("ROLLBACK"):
            self._target.undone()
            if sql.upper() == "ROLLBACK":
                self._commit()
        elif first.startswith("SAVEPOINT"):
            return
        else:
            self._statement(sql, schema)

    def _statement(self, sql: str, schema: str) -> None:
        statement = read_statement(sql, schema)
        if statement.xid and statement.does == "other":  # XA START, XA END
            self._xid, self._grouped, self._collected.undecided = statement.xid, True, True
            return
        self._target.statement(statement)
        if not self._grouped:
            self._commit()

    def _incident(self, data: bytes) -> None:
        """Pass on that the server could not log a change.  MySQL makes this a transaction, MariaDB gives it no GTID."""
        self._target.incident(int.from_bytes(data[13:17], "little"))
        self._commit()

    # -- rows
    def _table_map(self, data: bytes) -> None:
        body = data[HEADER:]
        if body not in self._described:
            if len(self._described) >= MOST_TABLES:
                self._described.clear()
            table = events.read_table_map(data, geometry_has_charset=self._mariadb)
            self._described[body] = self._target.describe(table)
        self._tables[events.table_number(data)] = self._described[body]

    def _rows(self, data: bytes) -> None:
        changed = self._tables.get(events.table_number(data))
        if changed is not None:
            changed.feed(data)

    def _partial(self, data: bytes) -> None:
        """Mark the table as incomplete: a PARTIAL_JSON update logs only the changed parts of a JSON document."""
        changed = self._tables.get(events.table_number(data))
        if changed is not None and not changed.skips(data[4]):
            self._collected.incomplete.add(changed.namespace)


def _xid_of(data: bytes) -> str:
    """Return the name of an XA transaction in the form that statements use."""
    form, size, qualifier = (int.from_bytes(data[HEADER + 1 + n : HEADER + 5 + n], "little") for n in (0, 4, 8))
    at = HEADER + 13
    return f"X'{data[at : at + size].hex()}',X'{data[at + size : at + size + qualifier].hex()}',{form}"
