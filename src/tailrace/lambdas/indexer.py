"""The indexer as a Lambda function on the stream of a home's table.

    TAILRACE_TABLE        the home's table, which has the event store and its index
    TAILRACE_PARTITIONS   the number of the index's partitions (1); refused if the stored number differs
    TAILRACE_GAPS         refuse (the default) or warn: what to do where events are missing for good

To Lambda a batch succeeds or fails as a whole: the function returns once all of it is indexed, or raises, and Lambda
delivers the batch again.  Events that were indexed before the error stay indexed and are not indexed twice.  Partial
answers (`ReportBatchItemFailures`) are not used: a mapping without that setting takes such an answer for success, and
the index would lose events silently.
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
    """Indexes the changes of one table.  It remembers the active epoch between the invocations of a warm function."""

    def __init__(
        self, store: Store, table: str, *, partitions: int = 1, gaps: Gaps = "refuse", **settings: Any
    ) -> None:
        self._store, self._table, self._gaps = store, table, gaps
        self._indexers = [Indexer(partition, **settings) for partition in range(partitions)]
        self._checked = False

    def index(self, event: Mapping[str, Any]) -> dict[str, int]:
        """Index the changes of an event; returns the number of changes, and of new spans and events among them.

        If events of one stream are missing, it indexes those of all other streams before it raises `MissingEvents`."""
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
        """Refuse a partition count other than the stored one, by which readers go: they would miss events."""
        if self._checked:
            return
        stored = partitions_of(self._store.run(settled(len(self._indexers))))
        if stored != len(self._indexers):
            raise BadSetting(
                f"the index has {stored} partitions, not {len(self._indexers)}: set TAILRACE_PARTITIONS={stored}"
            )
        self._checked = True

    def _ingest(self, indexer: Indexer, share: list[Span]) -> Ingestion:
        """Index some spans.  Events that the table's stream did not deliver are read from the store, if it has them."""
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
    """The function that these environment variables configure; `BadSetting` if one is missing or invalid."""
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
    """The entry point for Lambda."""
    if not _functions:
        _functions.append(of_environment(os.environ))
    done = _functions[0].index(event)
    log.info("indexed %s", json.dumps(done))
    return done
