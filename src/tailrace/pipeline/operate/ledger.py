"""The ledger: which pipelines a home has, their definitions when they last ran, their status, and operators' actions.

$Pipelines, bucket     names{pipeline: ""}: for listing
$Pipeline-<name>, 0    snapshot: JSON of the definition as it last ran (see define.drift.described)
$PipelineKey, 0        key: random bytes for the marks in snapshots
$Status-<name>, 0      status: JSON, at: when the run last wrote it; it does so every two seconds
topic <name>-actions   one JSON record for each action of an operator: what, who, why; if the action was refused,
                       another record: refused, of (the number of the first)
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import Any

import msgspec

from tailrace.coordination import guard
from tailrace.coordination.lease import Lease
from tailrace.coordination.process import has_ended, is_alive, user
from tailrace.errors import NotThere, UnknownTopic
from tailrace.home import Home
from tailrace.log.catalog import bucket_key, listing
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.define.drift import described
from tailrace.pipeline.runtime.status import age_of
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Item, Key, Put, Set, Update

SILENT = 15.0
"""Seconds after the last report of a run on another machine until the run counts as ended: it reports every two."""
MAX_SOURCES_IN_STATUS = 1000
"""The most namespaces in a stored status: they fit into an item, however long their names are."""
REFUSED_WITHIN = 100
"""Within how many records after an action `notes` looks for its refusal, which follows within seconds."""
_json = msgspec.json.Encoder(enc_hook=repr).encode
_actor: ContextVar[str] = ContextVar("actor", default="")


def pipelines(home: Home) -> list[str]:
    """The names of all pipelines that have run in a home."""
    return home.store.run(listing("$Pipelines"))


def remembered(home: Home, name: str) -> dict[str, Any] | None:
    """The stored definition of a pipeline's last run; None if it has never run."""
    item = home.store.run(guard.read(Key(f"$Pipeline-{name}")))
    return None if item is None else msgspec.json.decode(item["snapshot"])


def remember(home: Home, definition: Definition) -> None:
    """Store a pipeline's definition, and its name in the list of pipelines."""
    text = _json(described(definition, _key(home))).decode()
    home.store.run(_keep(Key(f"$Pipeline-{definition.name}"), {"snapshot": text}))
    bucket = bucket_key("$Pipelines", definition.name)
    home.store.run(guard.settle(bucket, lambda item: _listed(bucket, definition.name, item)))


def now(home: Home, definition: Definition, known: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a definition as `remember` stores it, with marks made as in `known`, so that the two can be compared."""
    return described(definition, _key(home) if known.get("keyed") else None)


def _key(home: Home) -> bytes:
    """The key for the marks of this home's snapshots; the first call creates it."""
    new = secrets.token_bytes(32)
    place = Key("$PipelineKey")
    item = home.store.run(guard.settle(place, lambda item: None if item else (Put(place, {"key": new}, (Absent(),)),)))
    return bytes(item["key"]) if item is not None else new


def sharing(home: Home, definition: Definition, settings: Iterable[str]) -> str | None:
    """The name of another pipeline of the home with the same source adaptor and the same values of these settings; None
    if there is none."""
    names = list(settings)
    for name in pipelines(home):
        known = remembered(home, name) or {}
        mine, theirs = now(home, definition, known)["source"], known.get("source", {})
        same = all(theirs.get("settings", {}).get(n) == mine["settings"].get(n) for n in names)
        if name != definition.name and theirs.get("adaptor") == mine["adaptor"] and same:
            return name
    return None


def _listed(bucket: Key, name: str, item: Item | None) -> tuple[Action, ...] | None:
    if item is None:
        return (Put(bucket, {"names": {name: ""}}, (Absent(),)),)
    return None if name in item["names"] else (Update(bucket, (Set(("names", name), ""),)),)


def _keep(key: Key, values: dict[str, Any]) -> Steps[None]:
    """Store an item without a condition: only the run that holds the pipeline's lease calls this."""
    while True:
        item = yield from guard.read(key)
        if item is not None and all(item.get(name) == value for name, value in values.items()):
            return
        if item is None:
            yield from guard.attempt(Put(key, values, (Absent(),)))
        else:
            yield from guard.attempt(Update(key, tuple(Set(name, value) for name, value in values.items())))


def report(home: Home, name: str, status: dict[str, Any]) -> None:
    """Store a run's status, so that other processes can read it.  Of more than MAX_SOURCES_IN_STATUS namespaces it
    stores only some, preferably those in the copy phase."""
    sources = status.get("sources", {})
    if len(sources) > MAX_SOURCES_IN_STATUS:
        first = sorted(sources, key=lambda name: sources[name]["phase"] != "copy")[:MAX_SOURCES_IN_STATUS]
        status = {
            **status,
            "sources": {name: sources[name] for name in first},
            "left_out": len(sources) - MAX_SOURCES_IN_STATUS,
        }
    home.store.run(_keep(Key(f"$Status-{name}"), {"status": _json(status).decode(), "at": int(time.time() * 1000)}))


def reported(home: Home, name: str) -> dict[str, Any]:
    """The last stored status of a pipeline: as `Status.shown`, with `at` (milliseconds since 1970).

    If the run was killed, the state says so and the writers' numbers are its last ones, while the `age` of pending
    messages grows.  `NotThere` if the pipeline has never run."""
    item = home.store.run(guard.read(Key(f"$Status-{name}")))
    if item is None:
        known = pipelines(home)
        hint = f"there are: {', '.join(known)}" if known else "none has run in this home yet"
        if name in known and not _running(home, name, 0.0):
            raise NotThere(f"the first run of the pipeline {name!r} has ended before it began; the next one says why")
        if name in known:
            raise NotThere(f"the first run of the pipeline {name!r} has only just begun; ask again in a second")
        raise NotThere(f"the pipeline {name!r} has never run here; {hint}")
    shown, now = {**msgspec.json.decode(item["status"]), "at": item["at"]}, time.time()
    if shown["state"] != "stopped" and not _running(home, name, now - item["at"] / 1000):
        shown["state"] = f"not running (was {shown['state']})"
    for sink in shown["sinks"].values():
        sink["age"] = age_of(sink["lag"], sink.get("oldest", 0), now)
    return shown


def _running(home: Home, name: str, silent: float) -> bool:
    """Whether the run that holds the pipeline's lease is alive: by its process on this machine, else by the time since
    its last report."""
    holder = Lease(home.store, f"pipeline-{name}").holder()
    return bool(holder) and not has_ended(holder) and (is_alive(holder) or silent <= SILENT)


@contextmanager
def acting(who: str) -> Iterator[None]:
    """A block in which notes name this operator, who acts over HTTP, and not the user that runs this process."""
    before = _actor.set(who)
    try:
        yield
    finally:
        _actor.reset(before)


def note(home: Home, name: str, what: str, why: str, **details: Any) -> int:
    """Record an operator's action with the operator's name and reason; returns the number of the note."""
    who = _actor.get() or f"{user()}@{socket.gethostname()}"
    return _append(home, name, {"what": what, "who": who, "why": why, **details})


def note_refusal(home: Home, name: str, number: int, error: str) -> None:
    """Record that the action of a note was refused, and why."""
    _append(home, name, {"refused": error, "of": number})


def _append(home: Home, name: str, written: dict[str, Any]) -> int:
    topic = home.topic(f"{name}-actions", partitions=1)
    return topic.append([(name.encode(), _json(written))])[0].offset


def notes(home: Home, name: str, most: int | None = None, before: int | None = None) -> list[dict[str, Any]]:
    """The recorded actions of operators, oldest first: all, or those among the newest `most` records, or among the
    records before the number `before`.  A refused action has the reason in `refused`.  A record that is no note, which
    a producer has written into the topic, is listed as one."""
    try:
        topic = home.topic(f"{name}-actions")
    except UnknownTopic:
        return []
    floor, end = topic.ends()[0]
    end = end if before is None else max(floor, min(end, before))
    start = floor if most is None else max(floor, end - most)
    found: dict[int, dict[str, Any]] = {}
    for record in takewhile(lambda one: one.offset < end + REFUSED_WITHIN, topic.records(0, start)):
        said = _said(record.value or b"")
        if "of" in said:
            found.get(said["of"], {})["refused"] = said["refused"]
        elif record.offset < end:
            if "number" in said:  # notes that an earlier version wrote
                said["letter"] = said.pop("number")
            found[record.offset] = {"at": record.timestamp, **said, "number": record.offset}
    return list(found.values())


def _said(value: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = {}
    is_note = {"what", "who", "why"} <= said.keys() or (isinstance(said.get("of"), int) and "refused" in said)
    return said if is_note else {"what": "a record that is no note", "who": "", "why": ""}
