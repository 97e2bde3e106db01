"""The recopier: copies tables again while they are followed, from the beginning, at their place in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tailrace.adaptors.contract import TRUNCATE, Changes, Command
from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.source import alterations, publication
from tailrace.adaptors.postgres.source.followed_tables import FollowedTables
from tailrace.adaptors.postgres.source.recopy import Recopy
from tailrace.adaptors.postgres.source.session import LogSession

if TYPE_CHECKING:
    import pyarrow as pa


class Recopier:
    """Copies tables again on the session of a follower.  `sign` makes changes that say that more is known to come;
    `is_durable` says whether the position that names these tables is stored."""

    def __init__(
        self,
        session: LogSession,
        tables: FollowedTables,
        sign: Callable[[Sequence[pa.RecordBatch]], Changes],
        is_durable: Callable[[set[str]], bool],
    ) -> None:
        self._session, self._tables, self._sign, self._is_durable = session, tables, sign, is_durable

    def publish_and_copy(self, names: Sequence[str]) -> Iterator[Changes]:
        """Publish and copy tables.  First waits until it is durable that they must be copied: once they are published,
        nothing else would show it."""
        if not names:
            return
        session, tables = self._session, self._tables
        settings, aside = session.settings, session.aside
        tables.point = replace(tables.point, recopy=tuple(dict.fromkeys(names)))
        yield self._sign(session.collected.take())
        while not self._is_durable(set(names)):
            yield self._sign(())
            time.sleep(0.01)
            session.alive()
        for one in catalog.identities(aside, names):
            publication.publish(aside, settings, [one])
            publication.wait_for_writers(aside, settings.published, one, settings.patience)
        yield from self.copy({name: set() for name in names})
        session.decoder.renew()

    def copy(self, names: Mapping[str, set[int]]) -> Iterator[Changes]:
        """Copy tables, each in a snapshot that has seen the given transactions: see recopy."""
        if not names:
            return
        session, tables = self._session, self._tables
        for name in names:
            session.collected.command(name, Command(TRUNCATE))
        tables.point = replace(tables.point, recopy=tuple(names))
        yield Changes(session.collected.take(), tables.point.stored(), session.collected.committed_at)
        forms = {name: form for name, form in tables.point.forms.items() if name not in names}
        forms |= alterations.forms(session.aside, list(names))
        made = [Recopy(session.database, session.settings, name, seen_by) for name, seen_by in names.items()]
        for copy in made:
            for batch in copy.batches():
                session.alive()
                if batch is not None:
                    yield Changes([batch], tables.point.stored())
        self._done(made, forms)
        yield Changes((), tables.point.stored())

    def _done(self, made: Sequence[Recopy], forms: Mapping[str, str]) -> None:
        """Put into the position what the copies are."""
        tables, point = self._tables, self._tables.point
        names = {copy.namespace for copy in made}
        cuts = {**point.cuts, **{copy.namespace: copy.cut for copy in made}}
        known = {**point.shapes, **{copy.namespace: copy.shape for copy in made}}
        shaped = {name: shape for name, shape in known.items() if shape}
        files = {name: old for name, old in point.files.items() if name not in names}
        tables.point = replace(point, cuts=cuts, recopy=(), shapes=shaped, forms=forms, files=files)
        tables.altered.forget(names)
        tables.moved -= names
        self._session.collected.unsettled = {}
        self._session.collected.remember(tables.point)
