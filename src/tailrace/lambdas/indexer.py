"""The indexer as a Lambda function on the stream of a home's table.

    TAILRACE_TABLE        the table: of the home, and so of its event store and its index
    TAILRACE_PARTITIONS   partitions of the index (1); refused if the index has another number
    TAILRACE_GAPS         refuse (the default) or warn: what to do where events are missing for good

A batch is all or nothing to Lambda: the function returns once everything in it is indexed, or it raises, and Lambda
delivers the batch again.  What was indexed before the error stays indexed and is not indexed twice.  Partial answers
(`ReportBatchItemFailures`) are not used: a mapping without that switch takes such an answer for success, and events
would be lost silently.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

from tailrace.errors import BadSetting, MissingEvents
from tailrace.feed.index import Indexer, Ingestion
from tailrace.feed.missing import stored_spans
from tailrace.feed.partition import shares
from tailrace.feed.span import Span, spans_of
from tailrace.feed.state import partitions_of, settled
from tailrace.lambdas.stream_event import changes_of
from tailrace.storage.aws.dynamodb import open_table
from tailrace.storage.calls import Store
from tailrace.storage.objects import NoObjects

Gaps = Literal["refuse", "warn"]

log = logging.getLogger(__name__)


class IndexerFunction:
    """Indexes the stream events of one table.  A function that stays warm remembers the active epoch between calls."""

    def __init__(
        self, store: Store, table: str, *, partitions: int = 1, gaps: Gaps = "refuse", **settings: Any
    ) -> None:
        self._store, self._table, self._gaps = store, table, gaps
        self._indexers = [Indexer(partition, **settings) for partition in range(partitions)]
        self._checked = False

    def index(self, event: Mapping[str, Any]) -> dict[str, int]:
        """Index what an event brings; gives how much there was, and how much of it was new.

        A batch that misses events in one stream is indexed in all others before `MissingEvents` is raised."""
        changes = changes_of(event, self._table)
        self._check_partitions()
        spans = events = 0
        failure: MissingEvents | None = None
        for partition, share in shares(spans_of(changes), len(self._indexers)).items():
            try:
                done = self._ingest(self._indexers[partition], share)
            except MissingEvents as missing:
                failure = missing
                continue
            spans, events = spans + done.spans, events + done.events
        if failure is not None:
            raise failure
        return {"changes": len(changes), "spans": spans, "events": events}

    def _check_partitions(self) -> None:
        """Readers go by the number of partitions that is stored: another one here would hide events from them."""
        if self._checked:
            return
        stored = partitions_of(self._store.run(settled(len(self._indexers))))
        if stored != len(self._indexers):
            raise BadSetting(
                f"the index has {stored} partitions, not {len(self._indexers)}: set TAILRACE_PARTITIONS={stored}"
            )
        self._checked = True

    def _ingest(self, indexer: Indexer, share: list[Span]) -> Ingestion:
        """Index some spans.  Events that did not come with the stream are taken from the store, if they are there."""
        try:
            return self._store.run(indexer.ingest(share))
        except MissingEvents as missing:
            log.warning("taking events from the store that the stream did not bring: %s", missing)
            found = self._store.run(stored_spans(missing.gaps))
        indexer.gaps = self._gaps
        try:
            return self._store.run(indexer.ingest([*found, *share]))
        finally:
            indexer.gaps = "refuse"


def of_environment(environment: Mapping[str, str]) -> IndexerFunction:
    """The function that some environment variables describe."""
    table, partitions = environment.get("TAILRACE_TABLE", ""), environment.get("TAILRACE_PARTITIONS", "1")
    gaps: Any = environment.get("TAILRACE_GAPS", "refuse")
    if not table:
        raise BadSetting("TAILRACE_TABLE is not set; it names the table of the home")
    if not partitions.isdecimal() or int(partitions) < 1:
        raise BadSetting(f"TAILRACE_PARTITIONS is a number from 1 on, not {partitions!r}")
    if gaps not in get_args(Gaps):
        raise BadSetting.unknown("TAILRACE_GAPS", gaps, get_args(Gaps))
    store = Store(open_table(table), NoObjects())
    return IndexerFunction(store, table, partitions=int(partitions), gaps=gaps)


_functions: list[IndexerFunction] = []


def handler(event: Mapping[str, Any], context: object = None) -> dict[str, int]:
    """What Lambda calls."""
    if not _functions:
        _functions.append(of_environment(os.environ))
    done = _functions[0].index(event)
    log.info("indexed %s", json.dumps(done))
    return done
