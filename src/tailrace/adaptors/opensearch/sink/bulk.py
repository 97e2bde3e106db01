"""Bulk requests: operations with external versions, several requests at a time.

A version is the writer's turn and, in its low bits, the step of that turn.  OpenSearch refuses an operation whose
version is not higher than the document's own (409), so nothing older ever replaces anything newer.  That holds for
deletes, too, as long as the index remembers them.  A step has no document twice.  So if an operation is refused,
another program has written the document, or a request of this writer whose answer was lost; the writer then writes it
again at a higher turn.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from tailrace.adaptors.opensearch.cluster import Cluster
from tailrace.adaptors.opensearch.errors import MAPPING, raised_limit, reason_of, refused
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink.documents import fields_of, merged
from tailrace.adaptors.opensearch.sink.operations import Change, Unit
from tailrace.errors import NotThere, Rejected, TailraceError, Throttled, TimedOut, TooLarge

TURN_BITS = 16
"""How many low bits of a version hold the step."""
MAX_TURN = 2 ** (62 - TURN_BITS)
REQUEST_BYTES, REQUEST_OPERATIONS = 8 * 1024 * 1024, 5000
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two attempts at a request that the cluster refuses for now."""
FOUND_AT_ONCE = 500
"""Documents that one request reads, at most."""
_CURRENT = re.compile(r"current version \[(\d+)\]")
_encode = msgspec.json.encode


class Operation(NamedTuple):
    """A put or, without a document, a delete: one operation of a bulk request."""

    unit: Unit
    id: str
    routing: str | None
    document: bytes | None


class Overtaken(TailraceError):
    """Documents have versions as high as this turn's or higher.  `turn` is the highest turn among them, `left` has the
    operations that were refused."""

    def __init__(self, turn: int, left: Sequence[Operation]) -> None:
        super().__init__(f"documents have versions up to the turn {turn}")
        self.turn, self.left = turn, left


class Bulk:
    """Sends operations as bulk requests."""

    def __init__(self, cluster: Cluster, settings: SearchSink, sleep: Callable[[float], None] = time.sleep) -> None:
        self._cluster, self._settings, self._sleep = cluster, settings, sleep

    def write(self, operations: Iterator[Operation], version: int, admitted: Callable[[], None]) -> None:
        """Carry out all operations with this version, and wait for the answers.  Before each round of requests it calls
        `admitted`, which raises if a newer run has begun.

        `Overtaken` if documents have versions that are not lower, `Rejected` if the index refuses a document."""
        higher, left = 0, list[Operation]()
        with ThreadPoolExecutor(self._settings.requests, "tailrace-opensearch") as pool:
            parts = _parts(operations)
            while some := [part for _, part in zip(range(self._settings.requests), parts, strict=False)]:
                admitted()
                for over, refused_ones in pool.map(lambda part: self._insist(part, version), some):
                    higher, left = max(higher, over), left + refused_ones
        if left:
            raise Overtaken(higher, left)

    def _insist(self, part: Sequence[Operation], version: int) -> tuple[int, list[Operation]]:
        """Send one request, and again the operations that a busy cluster refuses, for the setting `patience`.  Returns
        the highest turn that it met, and the operations refused for their version."""
        deadline, pause = time.monotonic() + self._settings.patience, FIRST_PAUSE
        higher, overtaken, left = 0, list[Operation](), list(part)
        while True:
            busy: TailraceError | None = None
            try:
                left, over, beyond, busy = self._request(left, version)
                overtaken += beyond
                higher = max(higher, over)
            except Throttled as error:
                busy = error
            if busy is None:
                return higher, overtaken
            if time.monotonic() + pause > deadline:
                raise Throttled(f"{busy}; it was so for {self._settings.patience:.0f} s")
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _request(
        self, part: Sequence[Operation], version: int
    ) -> tuple[list[Operation], int, list[Operation], TailraceError | None]:
        params = {"pipeline": self._settings.ingest} if self._settings.ingest else {}
        if self._settings.refresh == "wait":
            params["refresh"] = "wait_for"
        body = b"".join(piece for one in part for piece in _lines(one, version))
        try:
            answer = self._cluster.ask(
                "POST",
                "/_bulk",
                body,
                doing="writing a batch",
                filter_path="errors,items.*._id,items.*.status,items.*.error",
                **params,
            )
        except TooLarge as error:
            if len(part) > 1:
                middle = len(part) // 2
                first, second = self._request(part[:middle], version), self._request(part[middle:], version)
                return first[0] + second[0], max(first[1], second[1]), first[2] + second[2], first[3] or second[3]
            one = part[0]
            raise Rejected(
                f"{one.unit.namespace}: {error}: {one.id!r} has {len(body):,} bytes",
                namespace=one.unit.namespace,
                id=one.id,
            ) from None
        items = answer.get("items") or []
        if len(items) != len(part):
            raise TimedOut(
                f"OpenSearch at {self._cluster.where} was sent {len(part)} operations and answered {len(items)}"
            )
        return self._sorted(part, items, version >> TURN_BITS)

    def _sorted(
        self, part: Sequence[Operation], items: Sequence[dict[str, Any]], turn: int
    ) -> tuple[list[Operation], int, list[Operation], TailraceError | None]:
        """Sort the answers: the operations to send again; the highest turn met; the operations refused for their
        version; and why some must be sent again, None if none must."""
        again, beyond, higher, busy = list[Operation](), list[Operation](), 0, None
        for one, item in zip(part, items, strict=True):
            ((_, said),) = item.items()
            status = int(said["status"])
            if status < 300 or (status == 404 and one.document is None and "error" not in said):
                continue
            kind, reason = reason_of(said.get("error"))
            if status == 409:
                current = _CURRENT.search(reason)
                higher = max(higher, int(current[1]) >> TURN_BITS if current else turn)
                beyond.append(one)
                continue
            error = self._error(one, status, kind, reason)
            if not isinstance(error, Throttled):
                raise error
            again.append(one)
            busy = error
        return again, higher, beyond, busy

    def _error(self, one: Operation, status: int, kind: str, reason: str) -> TailraceError:
        unit = one.unit
        if status == 400 or kind in MAPPING:
            return Rejected(
                f"{unit.namespace}: the index {unit.index} refuses {one.id!r}: {kind}: {reason}"
                + (raised_limit(reason, unit.index) or _mends(unit, kind)),
                namespace=unit.namespace,
                id=one.id,
            )
        what = f"OpenSearch at {self._cluster.where}, writing a batch"
        return refused(status, kind, reason, what, unit.index)

    # -- changes of single fields
    def whole(self, unit: Unit, changed: Sequence[tuple[str, str | None, list[Change]]]) -> Iterator[Operation]:
        """Read the documents and merge the changes into them: operations with whole documents.  A change of a document
        that does not exist gives none."""
        for at in range(0, len(changed), FOUND_AT_ONCE):
            some = changed[at : at + FOUND_AT_ONCE]
            docs = [{"_id": id, **({"routing": routing} if routing else {})} for id, routing, _ in some]
            for (id, routing, changes), document in zip(some, self._sources(unit, docs), strict=True):
                if document is not None:
                    for fields, removed in changes:
                        document = merged(document, {n: msgspec.Raw(v) for n, v in fields.items()}, removed)
                    yield Operation(unit, id, routing, document)

    def _sources(self, unit: Unit, docs: Sequence[dict[str, str]]) -> Iterator[bytes | None]:
        from tailrace.adaptors.opensearch.cluster import path

        raw = self._cluster.raw(
            "POST", f"/{path(unit.index)}/_mget", {"docs": list(docs)}, doing="reading documents", index=unit.index
        )
        found = fields_of(raw).get("docs")
        answers = msgspec.json.decode(found, type=list[dict[str, msgspec.Raw]]) if found is not None else []
        if len(answers) != len(docs):
            raise TimedOut(
                f"OpenSearch at {self._cluster.where} was asked for {len(docs)} documents, gave {len(answers)}"
            )
        for one in answers:
            if "error" in one:
                raise NotThere(f"the index {unit.index} cannot be read: {bytes(one['error'])[:200]!r}")
            yield bytes(one["_source"]) if bytes(one.get("found", b"false")) == b"true" else None


def _mends(unit: Unit, kind: str) -> str:
    """Advice for an error of a mapping; "" for other errors."""
    if kind not in MAPPING:
        return ""
    return (
        f"; if the type of the field has changed at the source, name another index for {unit.namespace} in index = …, "
        "and `tailrace offset delete PIPELINE WRITER --why …` has everything delivered into it"
    )


def version_of(turn: int, step: int) -> int:
    """The version of all that a step of a turn writes."""
    return turn << TURN_BITS | step


def _lines(one: Operation, version: int) -> Iterator[bytes]:
    target: dict[str, Any] = {"_index": one.unit.index, "_id": one.id, "version": version, "version_type": "external"}
    if one.routing is not None:
        target["routing"] = one.routing
    if one.document is None:
        yield _encode({"delete": target}) + b"\n"
    else:
        yield _encode({"index": target}) + b"\n"
        yield one.document + b"\n"


def _parts(operations: Iterator[Operation]) -> Iterator[list[Operation]]:
    """Cut operations into the parts that one request holds."""
    part: list[Operation] = []
    size = 0
    for one in operations:
        bytes = len(one.document or b"") + len(one.id) + 120
        if part and (len(part) >= REQUEST_OPERATIONS or size + bytes > REQUEST_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += bytes
    if part:
        yield part
