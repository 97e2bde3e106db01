"""Indexes of a test, by hand, and readers and writers of them."""

from __future__ import annotations

import contextlib
import json
from types import TracebackType
from typing import Any

import pyarrow as pa
import urllib3

from tailrace.adaptors.contract import Who
from tailrace.adaptors.opensearch.settings import SearchSink, SearchSource
from tailrace.adaptors.opensearch.sink.writer import SearchWriter
from tailrace.adaptors.opensearch.source.reader import SearchReader
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode

WHO = Who("pipeline", "writer", 1)


class Place:
    """Indexes whose names begin alike, with a client of the test's own."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url, self.prefix = url, prefix
        self.http = urllib3.PoolManager()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(AssertionError, urllib3.exceptions.HTTPError):
            self.ask("DELETE", f"/{self.prefix}*")
        self.http.clear()

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """One request, by hand."""
        answer = self.http.request(
            method,
            self.url + path,
            body=None if body is None else json.dumps(body),
            headers={"content-type": "application/json"},
            retries=False,
            timeout=60,
            **({"fields": params} if params else {}),
        )
        assert answer.status < 300, answer.data[:500]
        return json.loads(answer.data)

    def index(self, name: str) -> str:
        """What an index of a namespace is called."""
        return self.prefix + name

    def hits(self, name: str) -> list[dict[str, Any]]:
        """All documents of an index, with ids and versions, by their ids."""
        self.ask("POST", f"/{self.index(name)}/_refresh")
        body: dict[str, Any] = {"size": 10_000, "version": True, "sort": ["_id"]}
        out: list[dict[str, Any]] = []
        while True:
            hits = self.ask("POST", f"/{self.index(name)}/_search", body)["hits"]["hits"]
            out += hits
            if len(hits) < 10_000:
                return out
            body["search_after"] = hits[-1]["sort"]

    def documents(self, name: str) -> dict[str, Any]:
        """All documents of an index by their ids."""
        return {hit["_id"]: hit["_source"] for hit in self.hits(name)}

    def writer(self, **settings: Any) -> SearchWriter:
        """A new writer to it, with its state in an index of its own."""
        given = {"uri": self.url, "index": self.prefix + "{namespace}", "create": True, "state": f"{self.prefix}state"}
        return SearchWriter(SearchSink(**{**given, **settings}))

    def reader(self, **settings: Any) -> SearchReader:
        """A new reader of it."""
        return SearchReader(SearchSource(**{"uri": self.url, "prefix": self.prefix, **settings}))

    def put(self, name: str, documents: dict[str, Any]) -> None:
        """Documents by their ids, by hand."""
        lines = [json.dumps(one) for id, d in documents.items() for one in ({"index": {"_id": id}}, d)]
        self.http.request(
            "POST",
            f"{self.url}/{self.index(name)}/_bulk?refresh=true",
            body="\n".join([*lines, ""]).encode(),
            headers={"content-type": "application/x-ndjson"},
        )

    def write(self, batch: pa.RecordBatch, offset: int = 1, who: Who = WHO, **settings: Any) -> None:
        """One batch, by a writer of its own."""
        with contextlib.closing(self.writer(**settings)) as sink:
            sink.finish([sink.stage([batch])], who, {"0": offset})


def rows(
    columns: dict[str, Any], keys: list[str] | tuple[str, ...] = ("id",), name: str = "c", **how: Any
) -> pa.RecordBatch:
    """Rows of a namespace."""
    return make_rows(name, pa.RecordBatch.from_pydict(columns), list(keys), **{"mode": Mode.SYNC, **how})
