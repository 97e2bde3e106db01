"""The state that a sink keeps for its pipelines, in an index of its own.

    ["pipeline","writer"]                epoch, offsets (JSON), claimed, turn, mark
    ["pipeline","writer","namespace"]    name, concrete, uuid, filled: the index that a namespace is written to

A run replaces the writer's document only if nobody has changed it since the run read it (if_seq_no), so of two runs
only one goes on.  `filled` means that the last batch left documents in the index: if it is empty now, another program
has emptied it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tailrace.adaptors.opensearch.cluster import Cluster, path
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import Conflict, NotReady, NotThere, TimedOut

_SEARCHED: dict[str, Any] = {"type": "keyword", "ignore_above": 8000}
_KEPT: dict[str, Any] = {"type": "keyword", "index": False, "doc_values": False}
MAPPINGS = {
    "dynamic": "strict",
    "properties": {
        **dict.fromkeys(("pipeline", "writer", "namespace"), _SEARCHED),
        **dict.fromkeys(("name", "concrete", "uuid", "offsets", "mark"), _KEPT),
        **{name: {"type": "long"} for name in ("epoch", "turn")},
        **{name: {"type": "boolean"} for name in ("claimed", "filled")},
    },
}
SETTINGS = {"index.number_of_shards": 1, "index.auto_expand_replicas": "0-1", "index.hidden": True}
STATE_PAGE_SIZE = 1000
_json = msgspec.json


class Kept(NamedTuple):
    """The state of a writer, and the version of its document when it was read."""

    fence: Fence = Fence()
    turn: int = 0
    mark: str = ""
    """A random text of the attempt that wrote the document."""
    place: tuple[int, int] | None = None
    """The document's sequence number and primary term; None if there is no document yet."""


class Written(NamedTuple):
    """An index that a namespace is written to, and whether it certainly has documents."""

    name: str
    concrete: str
    uuid: str
    filled: bool


def _key(*names: str) -> str:
    """The id of a document of the state.  A long one is a hash, because an id has at most 512 bytes."""
    text = _json.encode(names)
    return text.decode() if len(text) <= 500 else hashlib.sha256(text).hexdigest()


class State:
    """The stored state of one writer."""

    def __init__(self, cluster: Cluster, index: str, pipeline: str, writer: str) -> None:
        self._cluster, self._index, self._names = cluster, index, (pipeline, writer)
        self._at = f"/{path(index)}/_doc/{path(_key(*self._names))}"

    def read(self) -> Kept:
        """Read the writer's document, even if no search sees it yet."""
        try:
            found = self._cluster.ask("GET", self._at, doing="reading offsets", index=self._index, realtime="true")
        except NotThere:
            return Kept()
        one = found["_source"]
        offsets = None if one.get("offsets") is None else _json.decode(one["offsets"])
        fence = Fence(int(one["epoch"]), offsets, bool(one["claimed"]))
        return Kept(fence, int(one["turn"]), str(one["mark"]), (found["_seq_no"], found["_primary_term"]))

    def store(self, before: Kept, fence: Fence, turn: int, mark: str) -> Kept:
        """Replace the document that was read as `before`.  `Conflict` if another run has changed it since; by `mark`
        the writer recognizes its own write whose answer was lost."""
        names = dict(zip(("pipeline", "writer"), self._names, strict=True))
        offsets = None if fence.offsets is None else _json.encode(fence.offsets).decode()
        body = {**names, "epoch": fence.epoch, "offsets": offsets, "claimed": fence.claimed, "turn": turn, "mark": mark}
        if before.place is None:
            guard: dict[str, Any] = {"op_type": "create"}
        else:
            guard = {"if_seq_no": before.place[0], "if_primary_term": before.place[1]}
        try:
            done = self._cluster.ask("PUT", self._at, body, doing="storing offsets", index=self._index, **guard)
            return Kept(fence, turn, mark, (done["_seq_no"], done["_primary_term"]))
        except (Conflict, TimedOut):
            now = self.read()
            if now.mark == mark:  # the write happened, only its answer was lost
                return now
            raise

    # -- indexes
    def indexes(self) -> dict[str, Written]:
        """The indexes that the writer has written to, by namespace."""
        self._cluster.ask("POST", f"/{path(self._index)}/_refresh", doing="reading its indexes", index=self._index)
        return dict(self._pages())

    def _pages(self) -> Iterator[tuple[str, Written]]:
        terms = [{"term": {name: one}} for name, one in zip(("pipeline", "writer"), self._names, strict=True)]
        query = {"bool": {"filter": [*terms, {"exists": {"field": "namespace"}}]}}
        body: dict[str, Any] = {"size": STATE_PAGE_SIZE, "sort": ["namespace"], "query": query}
        while True:
            found = self._cluster.search(self._index, body, "reading its indexes")
            hits = found["hits"]["hits"]
            for hit in hits:
                one = hit["_source"]
                yield one["namespace"], Written(one["name"], one["concrete"], one["uuid"], one["filled"])
            if len(hits) < STATE_PAGE_SIZE:
                return
            body["search_after"] = hits[-1]["sort"]

    def keep(self, written: Mapping[str, Written | None]) -> None:
        """Store the indexes of these namespaces; None removes one."""
        if not written:
            return
        lines = []
        for namespace, one in written.items():
            target = {"_index": self._index, "_id": _key(*self._names, namespace)}
            lines.append(_json.encode({"delete" if one is None else "index": target}))
            if one is not None:
                names = dict(zip(("pipeline", "writer"), self._names, strict=True))
                lines.append(_json.encode({**names, "namespace": namespace, **one._asdict()}))
        done = self._cluster.ask(
            "POST", "/_bulk", b"\n".join([*lines, b""]), doing="storing its indexes", index=self._index
        )
        if done.get("errors"):
            for item in done["items"]:
                ((_, one),) = item.items()
                if one["status"] not in (200, 201, 404):
                    raise NotReady(f"the index {self._index} does not take tailrace's documents: {one.get('error')}")

    def forget(self) -> None:
        """Remove the indexes of all namespaces from the state."""
        self.keep(dict.fromkeys(self.indexes()))


def open_state(cluster: Cluster, index: str) -> None:
    """Make the state's index if it is missing."""
    if not cluster.indexes(index):
        create(cluster, index, {"settings": SETTINGS, "mappings": MAPPINGS})


def create(cluster: Cluster, index: str, body: Mapping[str, Any]) -> None:
    """Make an index, unless it exists."""
    try:
        cluster.ask("PUT", f"/{path(index)}", dict(body), doing=f"making the index {index}", index=index)
    except NotReady as error:
        if "resource_already_exists" not in str(error):
            raise
