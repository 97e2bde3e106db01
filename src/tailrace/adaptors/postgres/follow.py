"""Following: one connection that streams the log, one beside it that looks things up, and the changes they give."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.postgres import alter, catalog, publication, slot
from tailrace.adaptors.postgres.catalog import Column
from tailrace.adaptors.postgres.collect import Changed, Collected, Described
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.decode import Decoder
from tailrace.adaptors.postgres.fetch import fetch
from tailrace.adaptors.postgres.logstream import LogStream
from tailrace.adaptors.postgres.pgoutput import Relation, Row
from tailrace.adaptors.postgres.position import Point, lsn_number, mark
from tailrace.adaptors.postgres.recopy import Recopy, shapes
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.types import Type
from tailrace.errors import Unavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Connection

BEAT = 1.0
"""Seconds after which something is said even if nothing happened."""
SILENCE = 60.0
"""Seconds without a word from the server after which the connection is given up."""
TAKEN = 10.0
"""Seconds to wait for a slot that a process before us may still hold."""
DATA, HEADER = b"w"[0], 25
GONE = Type("text", "text", output="pg_catalog.textout", plain="text")
"""What is taken for a type that the catalog no longer has."""


class Follower:
    """Reads one slot's changes.  `acknowledge` may be called between two of them."""

    def __init__(self, database: Database, settings: PostgresSource, point: Point, namespaces: Sequence[str]) -> None:
        self._database, self._settings = database, settings
        self._point, self._followed = point, set(namespaces)
        self._copied, self._noted = set(namespaces), set(point.recopy)
        """The tables that are the pipeline's; of which it is durable that they must be copied again."""
        self._oids: dict[str, int] = {}
        self._moved: set[str] = set()
        """Tables whose rows moved while they were copied, all at once and without a word."""
        self._altered = alter.Alterations(leave=settings.altered == "leave")
        self._durable = point.lsn
        self._collected = Collected(
            self._describe,
            self._fetch,
            max_rows=settings.batch_rows,
            max_bytes=settings.batch_bytes,
            alive=self._alive,
        )
        self._decoder = Decoder(self._collected)
        self._types: dict[tuple[int, int], Type] = {}
        self._relations: dict[int, Relation] = {}
        self._aside: Connection[Any] | None = None
        self._stream: LogStream | None = None
        self._told = self._looked = self._heard = 0.0
        self._spoke = time.monotonic()
        self._signs = self._until = 0
        self._arrived = False
        """Whether it was said that all is given that there was in the beginning."""

    def acknowledge(self, point: Point) -> None:
        """Everything up to here is durable, and so is the position."""
        self._durable, self._noted = max(self._durable, point.lsn), set(point.recopy)

    def changes(self) -> Generator[Changes]:
        """The changes, for ever."""
        import psycopg

        try:
            self._open()
            yield from self._anew([*self._point.recopy, *self._replaced()])
            while True:
                self._read()
                self._alive()
                yield from self._emit()
        except psycopg.Error as error:
            with self._database.guarded("following"):
                raise slot.trouble(error, self._settings, self._database.where, self._durable) from None
        finally:
            self._close()

    # -- beginning and end
    def _open(self) -> None:
        settings, where = self._settings, self._database.where
        self._aside = aside = self._database.open()
        slot.kept(aside, where, settings, self._point.lsn)
        known = catalog.identities(aside, sorted(self._followed))
        lacking = publication.lacks(aside, settings.published, known)
        publication.publish(aside, settings, [one for one in known if one not in lacking])
        slot.free(aside, where, settings, TAKEN)
        tables = mark(sorted(self._followed))
        copied = self._point.copied if tables == self._point.tables else None
        self._know_copied(replace(self._point, tables=tables, copied=copied))
        self._until = self._now("flush")
        self._stream = LogStream(self._database, settings.slot, settings.published, self._point.lsn)
        self._heard = time.monotonic()
        self._collected.end = self._point.lsn

    def _know_copied(self, point: Point) -> None:
        """Whatever was copied was copied before now."""
        copied = self._now("insert") if point.copied is None else point.copied
        assert self._aside is not None
        self._moved |= alter.moved(self._aside, point.files)
        files = {name: old for name, old in point.files.items() if name in self._moved}
        self._point = replace(point, copied=copied, files=files)
        self._collected.copied = copied
        self._remember()

    def _remember(self) -> None:
        """What the position says of tables without a key."""
        self._collected.cuts, self._collected.shapes = dict(self._point.cuts), dict(self._point.shapes)

    def _now(self, end: Literal["insert", "flush"]) -> int:
        """The end of the log: of all that snapshots may have seen, or of what is sent once it is read so far."""
        assert self._aside is not None
        row = self._aside.execute(f"SELECT pg_current_wal_{end}_lsn()::text").fetchone()
        assert row is not None
        return lsn_number(row[0])

    def _close(self) -> None:
        import psycopg

        self._decoder.close()
        self._collected.close()
        if self._stream is not None:
            with contextlib.suppress(psycopg.Error):
                self._stream.tell(self._durable, self._durable)
            self._stream.close()
        if self._aside is not None:
            self._aside.close()

    # -- reading
    def _read(self) -> None:
        """Take in messages until there is something to say."""
        stream, decoder, collected = self._stream, self._decoder, self._collected
        assert stream is not None
        read, feed, most = stream.read, decoder.feed, self._settings.batch_rows
        budget = 1000
        while True:
            size, message = read(1)
            if size > 0:
                if message[0] == DATA:
                    feed(bytes(message), HEADER)
                    budget -= 1
                else:
                    self._keepalive(bytes(message))
                if (budget <= 0 or collected.rows >= most) and decoder.between:
                    self._heard = time.monotonic()
                    return
            elif size == 0:
                seconds = self._due()
                stream.wait(max(seconds, 0))
                if seconds <= 0:
                    return
            else:
                raise stream.ended()

    def _keepalive(self, message: bytes) -> None:
        self._heard = time.monotonic()
        if self._decoder.between:
            self._collected.end = max(self._collected.end, int.from_bytes(message[1:9], "big"))
        if message[17]:
            self._alive(asked=True)

    def _due(self) -> float:
        """In how many seconds something must be said, to the caller or to the server."""
        self._alive()
        now = time.monotonic()
        if now - self._heard > SILENCE:
            raise Unavailable(f"PostgreSQL at {self._database.where} has been silent for {SILENCE:.0f} s")
        if not self._arrived and self._decoder.between and self._collected.end >= self._until:
            return 0.0
        ripe = self._collected.rows and self._decoder.between
        return min(self._spoke + (self._settings.linger if ripe else BEAT) - now, BEAT)

    def _alive(self, *, asked: bool = False) -> None:
        """Tell the server that we are there, and how far; ask where it is."""
        now = time.monotonic()
        if self._stream is not None and (asked or now - self._told >= BEAT):
            self._stream.tell(max(self._collected.end, self._durable), self._durable, ask=not asked)
            self._told = now

    # -- giving
    def _emit(self) -> Iterator[Changes]:
        """What has been read, if it is whole transactions."""
        self._spoke = time.monotonic()
        if not self._decoder.between:
            yield self._sign()
            return
        self._point = self._point.at(self._collected.end)
        self._remember()
        if self._collected.unsettled:
            yield from self._recopy(self._collected.unsettled)
            return
        appeared: list[str] = []
        if time.monotonic() - self._looked >= self._settings.discover:
            self._looked = time.monotonic()
            if replaced := self._replaced():
                yield from self._anew(replaced)
                return
            appeared = self._appeared()
        rows, altered = self._collected.take(), self._altered.ripe(self._point.lsn)
        committed_at = self._collected.committed_at if rows else 0
        if rows and altered:  # first what happened before they are copied
            yield Changes(rows, self._point.stored(), committed_at)
            rows = []
        if appeared or altered:
            self._note(appeared, altered)
        if not (rows or appeared or altered) and (self._altered or self._point.lsn < self._until):
            yield self._sign()
            return
        self._arrived = not (appeared or altered or self._altered) and self._point.lsn >= self._until
        yield Changes(rows, self._point.stored(), committed_at, appeared, list(altered), self._arrived)
        if appeared or altered:
            self._followed |= set(appeared)
            self._copied |= self._published(appeared)
            forms = {name: form for name, form in self._point.forms.items() if name in self._copied}
            self._know_copied(replace(self._point, forms=forms))
            self._looked = 0.0 if self._moved else self._looked
            self._until = self._now("flush")  # what was copied is whole once the log is read so far
            self._decoder.renew()

    def _sign(self, rows: Sequence[pa.RecordBatch] = ()) -> Changes:
        """A sign of life, of which the position says that more is known to come: it is not twice the same."""
        self._signs += 1
        committed_at = self._collected.committed_at if rows else 0
        return Changes(rows, {**self._point.stored(), "more": self._signs}, committed_at)

    def _appeared(self) -> list[str]:
        """Tables that are new."""
        assert self._aside is not None
        return sorted(catalog.listing(self._aside) - self._followed)

    def _note(self, appeared: Sequence[str], altered: Mapping[str, str]) -> None:
        """What tables are that are copied now."""
        assert self._aside is not None
        shaped = {**self._point.shapes, **shapes(self._aside, None, catalog.identities(self._aside, appeared))}
        forms = {**self._point.forms, **alter.forms(self._aside, appeared), **altered}
        files = {**catalog.files(self._aside, [*appeared, *altered]), **self._point.files}
        self._point = replace(self._point, copied=None, shapes=shaped, forms=forms, files=files)

    def _published(self, tables: Sequence[str]) -> set[str]:
        """Those of some tables that are the pipeline's: they have been copied, and are published."""
        assert self._aside is not None
        known = catalog.identities(self._aside, tables)
        lacking = publication.lacks(self._aside, self._settings.published, known)
        return {one.namespace for one in known if one not in lacking}

    def _replaced(self) -> list[str]:
        """Tables that are followed, and not published, or not those that were when we last looked: each is another one
        than was copied, under its name.  And those whose rows have other ids."""
        assert self._aside is not None
        known = catalog.identities(self._aside, sorted(self._copied))
        others = {one.namespace for one in publication.lacks(self._aside, self._settings.published, known)}
        others |= {one.namespace for one in known if self._oids.get(one.namespace, one.oid) != one.oid}
        self._oids |= {one.namespace: one.oid for one in known}
        same, rekeyed = self._altered.find(self._aside, self._copied, self._point.forms)
        self._point = replace(self._point, forms={**self._point.forms, **same})
        return sorted(others | rekeyed | self._moved)

    def _anew(self, tables: Sequence[str]) -> Iterator[Changes]:
        """Copy tables from the beginning, and publish those that are not.  That they must be copied is durable before:
        once they are published nothing else tells it."""
        if not tables:
            return
        assert self._aside is not None
        self._point = replace(self._point, recopy=tuple(dict.fromkeys(tables)))
        yield self._sign(self._collected.take())
        while not self._noted >= set(tables):
            yield self._sign()
            time.sleep(0.01)
            self._alive()
        for one in catalog.identities(self._aside, tables):
            publication.publish(self._aside, self._settings, [one])
            publication.wait_for_writers(self._aside, self._settings.published, one, self._settings.patience)
        yield from self._recopy({name: set() for name in tables})
        self._decoder.renew()

    def _recopy(self, tables: Mapping[str, set[int]]) -> Iterator[Changes]:
        """Tables without a key that changed while they were copied, from the beginning: see recopy."""
        if not tables:
            return
        for name in tables:
            self._collected.command(name, "truncate")
        self._point = replace(self._point, recopy=tuple(tables))
        yield Changes(self._collected.take(), self._point.stored(), self._collected.committed_at)
        assert self._aside is not None
        forms = {name: form for name, form in self._point.forms.items() if name not in tables}
        forms |= alter.forms(self._aside, list(tables))
        made = [Recopy(self._database, self._settings, name, seen_by) for name, seen_by in tables.items()]
        for copy in made:
            for batch in copy.batches():
                self._alive()
                if batch is not None:
                    yield Changes([batch], self._point.stored())
        cuts = {**self._point.cuts, **{copy.namespace: copy.cut for copy in made}}
        known = {**self._point.shapes, **{copy.namespace: copy.shape for copy in made}}
        shaped = {name: shape for name, shape in known.items() if shape}
        files = {name: old for name, old in self._point.files.items() if name not in tables}
        self._point = replace(self._point, cuts=cuts, recopy=(), shapes=shaped, forms=forms, files=files)
        self._altered.forget(tables)
        self._moved -= tables.keys()
        self._collected.unsettled = {}
        self._remember()
        yield Changes((), self._point.stored())

    # -- looking things up
    def _describe(self, relation: Relation) -> Described | None:
        if relation.namespace not in self._followed or not relation.columns or self._aside is None:
            self._looked = 0.0
            return None
        if self._relations.setdefault(relation.oid, relation) != relation:
            self._looked, self._relations[relation.oid] = 0.0, relation
        asked = {(column.type, column.modifier) for column in relation.columns} - self._types.keys()
        if asked:
            self._types |= catalog.types(self._aside, asked)
        columns = tuple(Column(c.name, self._types.get((c.type, c.modifier), GONE)) for c in relation.columns)
        return columns, self._keys(relation)

    def _keys(self, relation: Relation) -> tuple[str, ...]:
        if relation.identity in "di":
            return tuple(column.name for column in relation.columns if column.key)
        assert self._aside is not None
        keys = catalog.keys(self._aside, relation.oid, "d")
        return keys if {column.name for column in relation.columns} >= set(keys) else ()

    def _fetch(self, changed: Changed, rows: list[Row]) -> list[bool]:
        assert self._aside is not None
        table = changed.relation.schema, changed.relation.name
        return fetch(self._aside, table, changed.columns, changed.keys, rows)
