"""Writers: each owns some tables and changes them, one transaction after the other, whatever happens to the server.

Its seed alone says what it does.  Each transaction notes its number in the ledger, so after a crash of the server the
writer knows whether the last one was committed; if not, it does the same again."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.torture.actions import ROWS, TABLES, Book, Plan, data
from tests.torture.schema import Table

SHARE = 0.12
"""How many of the transactions alter tables rather than rows."""
TOGETHER = ("parent", "heir"), ("referred", "refers"), ("teller", "told"), ("swap_one", "swap_two")
"""Tables that depend on each other."""
PASSING = ("40", "57", "55", "53", "08")
"""Classes of errors with which the same is tried again: a deadlock, a server that goes or comes."""


@dataclass(frozen=True)
class Done:
    """A transaction, and what became of it."""

    writer: int
    number: int
    plan: Plan
    outcome: str
    at: float

    def __str__(self) -> str:
        statements = "\n        ".join(s if len(s) < 500 else f"{s[:500]} …" for s in self.plan.statements)
        what = f"writer {self.writer} #{self.number} {self.plan.name}: {self.outcome}"
        return f"{self.at:8.1f} s  {what}\n        {statements}"


class Writer:
    """One writer, in a thread."""

    def __init__(
        self, uri: str, seed: int, number: int, tables: Sequence[Table], rest: float = 0.0, without: Sequence[str] = ()
    ) -> None:
        self._uri, self._number, self._rest = uri, number, rest
        self._book = Book(random.Random(f"{seed} {number}"), list(tables), first=(number + 1) * 1_000_000)
        self._rows = [name for name in ROWS if name not in without]
        self._alters = {name: pair for name, pair in TABLES.items() if name not in without}
        self._stop = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer {number}", daemon=True)
        self._began = time.monotonic()
        self._count = 0
        self.history: list[Done] = []
        self.doing: Plan | None = None
        self.trouble: BaseException | None = None

    # -- from outside
    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the transaction that is under way."""
        self._stop.set()

    def join(self, seconds: float = 120) -> None:
        """Wait for the end; raises what was wrong with the writer itself."""
        self._thread.join(seconds)
        if self.trouble is not None:
            raise self.trouble
        assert not self._thread.is_alive(), f"writer {self._number} hangs in {self.doing}"

    # -- in the thread
    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for plan in self.plans():
                    self._do(plan)
                    time.sleep(self._rest)
        except BaseException as error:
            self.trouble = error
        finally:
            self._hang_up()

    def plans(self) -> list[Plan]:
        """What it does next: one transaction, or some that belong together."""
        rng = self._book.rng
        if self._alters and rng.random() < SHARE:
            ((make, _),) = rng.choices(list(self._alters.values()), [weight for _, weight in self._alters.values()])
            return make(self._book) or []
        name, touched, statements = data(self._book, self._rows)
        if not statements:
            return []
        plan = Plan(name, touched, statements)
        chance = rng.random()
        if chance < 0.05:
            plan.ending = "rollback"
        elif chance < 0.10:
            _, more, undone = data(self._book, self._rows)
            plan.statements += ["SAVEPOINT half", *undone, "ROLLBACK TO half"]
            plan.touches += more
        elif chance < 0.14 and not any("TEMP TABLE" in s for s in statements):
            plan.ending = "prepare" if rng.random() < 0.6 else "prepare and rollback"
        return [plan]

    def _do(self, plan: Plan) -> None:
        self._count += 1
        self.doing, outcome = plan, None
        while outcome is None:
            try:
                outcome = self._attempt(plan)
            except psycopg.Error as error:
                if (error.sqlstate or "08")[:2] in PASSING:
                    self._hang_up()
                    time.sleep(0.1)
                else:
                    outcome = f"refused: {str(error).splitlines()[0]}"
        if outcome == "committed":
            plan.becomes()
        self.history.append(Done(self._number, self._count, plan, outcome, time.monotonic() - self._began))

    def _attempt(self, plan: Plan) -> str:
        """Carry a plan out, unless it is done already."""
        gid = f"torture {self._number} {self._count}"
        connection = self._connected()
        if self._noted(connection) >= self._count:
            return "committed"
        self._settle(connection, gid, plan)
        if self._noted(connection) >= self._count:
            return "committed"
        if plan.ending == "alone":
            connection.execute(plan.statements[0])
            self._note(connection)
            return "committed"
        return self._transact(connection, gid, plan)

    def _transact(self, connection: psycopg.Connection[Any], gid: str, plan: Plan) -> str:
        connection.execute("BEGIN")
        try:
            for statement in plan.statements:
                connection.execute(statement)
            if plan.ending != "rollback":
                self._note(connection)
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        if not plan.ending.startswith("prepare"):
            connection.execute("COMMIT" if plan.ending == "commit" else "ROLLBACK")
            return "committed" if plan.ending == "commit" else "rolled back"
        connection.execute(f"PREPARE TRANSACTION '{gid}'")
        return self._settle(connection, gid, plan)

    def _settle(self, connection: psycopg.Connection[Any], gid: str, plan: Plan) -> str:
        """End a prepared transaction, as it is planned; one that a crash has left, too."""
        if not connection.execute("SELECT 1 FROM pg_prepared_xacts WHERE gid = %s", [gid]).fetchone():
            return "committed"
        commit = plan.ending == "prepare"
        connection.execute(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{gid}'")
        return "committed" if commit else "rolled back"

    def _noted(self, connection: psycopg.Connection[Any]) -> int:
        row = connection.execute("SELECT number FROM ledger.done WHERE writer = %s", [self._number]).fetchone()
        return row[0] if row else 0

    def _note(self, connection: psycopg.Connection[Any]) -> None:
        sql = "INSERT INTO ledger.done VALUES (%s, %s) ON CONFLICT (writer) DO UPDATE SET number = excluded.number"
        connection.execute(sql, [self._number, self._count])

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            options = "-c TimeZone=UTC -c client_min_messages=warning"
            self._connection = psycopg.connect(self._uri, autocommit=True, options=options, connect_timeout=10)
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def about(history: Sequence[Done], namespace: str, last: int = 8) -> list[Done]:
    """The last transactions that touched a table."""
    return [done for done in history if namespace in done.plan.touches][-last:]


def owned(tables: Sequence[Table], writers: int) -> list[list[Table]]:
    """The tables of each writer; those that depend on each other stay together."""
    out: list[list[Table]] = [[] for _ in range(writers)]
    together = {name: group[0] for group in TOGETHER for name in group}
    places: dict[str, int] = {}
    for n, table in enumerate(tables):
        place = places.setdefault(together.get(table.name, table.namespace), n % writers)
        out[place].append(table)
    return out
