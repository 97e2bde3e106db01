"""The copy of a shard: opens a point in time for the shard alone, and reads it page by page.

A piece is a shard, because every document is in exactly one shard, whenever it is read.  Slices of an index are the
same only within one point in time, and a copy that goes on after a crash has another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from tailrace.adaptors.opensearch.cluster import Cluster, path
from tailrace.adaptors.opensearch.settings import SearchSource
from tailrace.errors import NotReady, NotThere, TailraceError, Unavailable

FIRST_PAGE = 100
"""How many documents the first page has.  The bytes of each page decide how many the next has."""


class Hit(msgspec.Struct, rename={"id": "_id", "source": "_source"}):
    """A document in a page of a search."""

    id: str
    sort: list[msgspec.Raw]
    source: msgspec.Raw = msgspec.Raw()
    """Empty if the index keeps no _source."""


class _Hits(msgspec.Struct):
    hits: list[Hit]


class _Page(msgspec.Struct):
    hits: _Hits
    pit_id: str = ""


_decode = msgspec.json.Decoder(_Page).decode


class ShardCopy:
    """Reads one shard of an index as it is when `pages` begins."""

    def __init__(self, cluster: Cluster, settings: SearchSource, index: str, shard: int) -> None:
        self._cluster, self._settings = cluster, settings
        self._index, self._shard = index, shard

    def pages(self) -> Iterator[list[Hit]]:
        """All documents of the shard, a page at a time.  `Unavailable` if the cluster has dropped the point in time."""
        with contextlib.closing(self._open()) as opened:
            yield from opened

    def _open(self) -> Generator[list[Hit], None, None]:
        moment = self._begin()
        try:
            size, after = FIRST_PAGE, list[msgspec.Raw]()
            while True:
                raw, moment = self._page(moment, size, after)
                hits = raw.hits.hits
                if not all(bytes(hit.source) for hit in hits):
                    raise NotReady(f"the index {self._index} keeps no _source: what its documents were is not known")
                if hits:
                    yield hits
                if len(hits) < size:
                    return
                after = hits[-1].sort
                bytes_each = max(1, sum(len(bytes(hit.source)) for hit in hits) // len(hits))
                size = max(1, min(self._settings.batch_rows, self._settings.batch_bytes // bytes_each))
        finally:
            with contextlib.suppress(TailraceError):  # the point in time expires by itself
                self._end(moment)

    @property
    def _is_opensearch(self) -> bool:
        return self._cluster.distribution == "opensearch"

    @property
    def _kept(self) -> str:
        return f"{self._settings.keep_alive}m"

    def _begin(self) -> str:
        way = "_search/point_in_time" if self._is_opensearch else "_pit"
        found = self._cluster.ask(
            "POST",
            f"/{path(self._index)}/{way}",
            doing=f"copying {self._index}",
            index=self._index,
            keep_alive=self._kept,
            preference=f"_shards:{self._shard}",
        )
        return str(found["pit_id" if self._is_opensearch else "id"])

    def _page(self, moment: str, size: int, after: list[msgspec.Raw]) -> tuple[_Page, str]:
        body: dict[str, Any] = {
            "size": size,
            "sort": ["_doc"],
            "track_total_hits": False,
            "pit": {"id": moment, "keep_alive": self._kept},
            **({"search_after": after} if after else {}),
        }
        doing = f"copying {self._index}"
        try:
            raw = self._cluster.raw("POST", "/_search", body, doing=doing, allow_partial_search_results="false")
        except NotThere:
            raise Unavailable(
                f"{doing} at {self._cluster.where}: the moment that was copied is no longer kept, so its shard is "
                "copied again; a larger keep_alive = … keeps it longer"
            ) from None
        try:
            page = _decode(raw)
        except msgspec.DecodeError:
            raise Unavailable(f"{doing} at {self._cluster.where}: the answer is not whole") from None
        return page, page.pit_id or moment

    def _end(self, moment: str) -> None:
        way, body = (
            ("/_search/point_in_time", {"pit_id": [moment]}) if self._is_opensearch else ("/_pit", {"id": moment})
        )
        self._cluster.ask("DELETE", way, body, doing="ending a copy")
