"""A workload: somebody who keeps changing tables of every form while they are copied and followed."""

from __future__ import annotations

import random
import threading
from types import TracebackType

import psycopg

from tests.adaptors.postgres.place import Place

TABLES = ("keyed", "composite", "keyless", "parted")
SETUP = """
CREATE TABLE keyed (id int PRIMARY KEY, v text, big text, n numeric(12,3), at timestamptz DEFAULT now());
ALTER TABLE keyed ALTER big SET STORAGE EXTERNAL;
CREATE TABLE composite (a int, b text, v int, PRIMARY KEY (a, b));
CREATE TABLE keyless (a int, b text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE parted (id int, region int, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
INSERT INTO keyed SELECT n, 'v' || n, repeat('b', 3000), n FROM generate_series(1, 2000) n;
INSERT INTO composite SELECT n, 'b' || n, n FROM generate_series(1, 1000) n;
INSERT INTO keyless SELECT n % 100, 'x' FROM generate_series(1, 500) n;
INSERT INTO parted SELECT n, n % 2, 'v' FROM generate_series(1, 1000) n;
"""

_EXTRA = """SELECT attname, CASE atttypid WHEN 'int'::regtype THEN 'bigint' ELSE 'int' END FROM pg_attribute
    WHERE attrelid = %s::regclass AND attname LIKE 'extra%%' ORDER BY random() LIMIT 1"""


class Workload:
    """Random changes, in a thread, until the block ends."""

    def __init__(self, place: Place, seed: int, *, truncates: bool = True, alters: bool = True) -> None:
        self._place, self._random = place, random.Random(seed)
        self._rare = [self._truncate] * truncates + [self._alter] * alters
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._next = (seed + 1) * 1_000_000
        self._columns = 0
        self.done = 0
        self.trouble: BaseException | None = None

    def __enter__(self) -> Workload:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        try:
            with psycopg.connect(self._place.uri, autocommit=True) as connection:
                while not self._stop.is_set():
                    self._once(connection)
                    self.done += 1
        except psycopg.OperationalError:
            return  # The server was killed: so be it.
        except BaseException as error:
            self.trouble = error

    def _once(self, connection: psycopg.Connection) -> None:
        pick = self._random
        usual = [self._insert, self._update, self._delete, self._rekey, self._keyless, self._parted]
        with connection.transaction(force_rollback=pick.random() < 0.05):
            for _ in range(pick.choice([1, 1, 1, 5])):
                rare = self._rare and pick.random() < 0.01
                pick.choice(self._rare if rare else usual)(connection)

    def _id(self) -> int:
        return self._random.randrange(1, 2000)

    def _insert(self, connection: psycopg.Connection) -> None:
        self._next += 1
        big = self._random.choice(["small", "b" * 5000])
        connection.execute("INSERT INTO keyed (id, v, big) VALUES (%s, 'new', %s)", [self._next, big])
        connection.execute("INSERT INTO composite VALUES (%s, 'new', 0)", [self._next])

    def _update(self, connection: psycopg.Connection) -> None:
        connection.execute("UPDATE keyed SET v = v || '.', n = n + 0.5 WHERE id = %s", [self._id()])
        connection.execute("UPDATE composite SET v = v + 1 WHERE a = %s", [self._id()])
        if self._random.random() < 0.2:
            connection.execute("UPDATE keyed SET big = repeat(%s, 4000) WHERE id = %s", ["z", self._id()])

    def _delete(self, connection: psycopg.Connection) -> None:
        connection.execute("DELETE FROM keyed WHERE id = %s", [self._id()])
        connection.execute("DELETE FROM composite WHERE a = %s", [self._id()])

    def _rekey(self, connection: psycopg.Connection) -> None:
        self._next += 1
        connection.execute("UPDATE keyed SET id = %s WHERE id = %s", [self._next, self._id()])
        connection.execute("UPDATE composite SET b = 'moved' || a WHERE a = %s", [self._id()])

    def _keyless(self, connection: psycopg.Connection) -> None:
        a = self._random.randrange(100)
        connection.execute("INSERT INTO keyless VALUES (%s, 'x'), (%s, 'x')", [a, a + 1])
        connection.execute("DELETE FROM keyless WHERE ctid = (SELECT min(ctid) FROM keyless WHERE a = %s)", [a])
        connection.execute("UPDATE keyless SET b = %s WHERE a = %s", [self._random.choice("xyz"), a])

    def _parted(self, connection: psycopg.Connection) -> None:
        self._next += 1
        connection.execute("INSERT INTO parted VALUES (%s, %s, 'new')", [self._next, self._next % 2])
        connection.execute("UPDATE parted SET region = 1 - region WHERE id = %s", [self._id()])
        connection.execute("UPDATE parted SET v = v || '.' WHERE id = %s", [self._id()])

    def _truncate(self, connection: psycopg.Connection) -> None:
        table = self._random.choice(TABLES)
        connection.execute(f"TRUNCATE {table}")
        if table == "keyed":
            connection.execute("INSERT INTO keyed (id, v) SELECT n, 'again' FROM generate_series(1, 100) n")

    def _alter(self, connection: psycopg.Connection) -> None:
        table = self._random.choice(TABLES)
        self._columns += 1
        name = f"extra{self._columns}"
        found = connection.execute(_EXTRA, [table]).fetchone()
        kind = self._random.choice(["empty", "default", "name", "type"] if found else ["empty", "default"])
        if kind == "empty":
            connection.execute(f"ALTER TABLE {table} ADD {name} int")
            connection.execute(f"UPDATE {table} SET {name} = 7")
        elif kind == "default":
            connection.execute(f"ALTER TABLE {table} ADD {name} int DEFAULT {self._columns}")
        elif kind == "name" and found:
            connection.execute(f"ALTER TABLE {table} RENAME {found[0]} TO {name}")
        elif found:
            connection.execute(f"ALTER TABLE {table} ALTER {found[0]} TYPE {found[1]} USING {found[0]} + 1")
