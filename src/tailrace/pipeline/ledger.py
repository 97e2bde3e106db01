"""The ledger: which pipelines a home has, what they were when they last ran, how they are, and what operators did.

$Pipelines, bucket     names{pipeline: ""}: for listing
$Pipeline-<name>, 0    snapshot: JSON of the definition as it last ran (see changes.described)
$Status-<name>, 0      status: JSON, at: written by the run every two seconds
topic <name>-actions   one JSON record for each thing an operator did: what, who, why
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.coordination import guard
from tailrace.errors import NotThere, UnknownTopic
from tailrace.home import Home
from tailrace.log.catalog import bucket_key, listing
from tailrace.pipeline.changes import described
from tailrace.pipeline.definition import Definition
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Item, Key, Put, Set, Update

_json = msgspec.json.Encoder(enc_hook=repr).encode


def pipelines(home: Home) -> list[str]:
    """The names of all pipelines that have run in a home."""
    return home.store.run(listing("$Pipelines"))


def remembered(home: Home, name: str) -> dict[str, Any] | None:
    """What a pipeline was when it last ran; None if it never has."""
    item = home.store.run(guard.read(Key(f"$Pipeline-{name}")))
    return None if item is None else msgspec.json.decode(item["snapshot"])


def remember(home: Home, definition: Definition) -> None:
    """Note what a pipeline is now."""
    text = _json(described(definition)).decode()
    home.store.run(_keep(Key(f"$Pipeline-{definition.name}"), {"snapshot": text}))
    bucket = bucket_key("$Pipelines", definition.name)
    home.store.run(guard.settle(bucket, lambda item: _listed(bucket, definition.name, item)))


def sharing(home: Home, definition: Definition, settings: Iterable[str]) -> str | None:
    """Another pipeline of the home whose source is of the same kind and has these settings in common."""
    mine, names = described(definition)["source"], list(settings)
    for name in pipelines(home):
        theirs = (remembered(home, name) or {}).get("source", {})
        same = all(theirs.get("settings", {}).get(n) == mine["settings"].get(n) for n in names)
        if name != definition.name and theirs.get("adaptor") == mine["adaptor"] and same:
            return name
    return None


def _listed(bucket: Key, name: str, item: Item | None) -> tuple[Action, ...] | None:
    if item is None:
        return (Put(bucket, {"names": {name: ""}}, (Absent(),)),)
    return None if name in item["names"] else (Update(bucket, (Set(("names", name), ""),)),)


def _keep(key: Key, values: dict[str, Any]) -> Steps[None]:
    """Store an item whatever is there: only the run that holds the pipeline's lease does."""
    while True:
        item = yield from guard.read(key)
        if item is not None and all(item.get(name) == value for name, value in values.items()):
            return
        if item is None:
            yield from guard.attempt(Put(key, values, (Absent(),)))
        else:
            yield from guard.attempt(Update(key, tuple(Set(name, value) for name, value in values.items())))


def report(home: Home, name: str, status: dict[str, Any]) -> None:
    """Show a run's status to other processes."""
    home.store.run(_keep(Key(f"$Status-{name}"), {"status": _json(status).decode(), "at": int(time.time() * 1000)}))


def reported(home: Home, name: str) -> dict[str, Any]:
    """The last status a run has shown: as `Status.shown`, with `at` (milliseconds since 1970)."""
    item = home.store.run(guard.read(Key(f"$Status-{name}")))
    if item is None:
        known = pipelines(home)
        hint = f"there are: {', '.join(known)}" if known else "none has run in this home yet"
        raise NotThere(f"the pipeline {name!r} has never run here; {hint}")
    return {**msgspec.json.decode(item["status"]), "at": item["at"]}


def note(home: Home, name: str, what: str, why: str, **details: Any) -> None:
    """Record what an operator did: who and why."""
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    topic = home.topic(f"{name}-actions", partitions=1)
    topic.append([(name.encode(), _json({"what": what, "who": who, "why": why, **details}))])


def notes(home: Home, name: str) -> list[dict[str, Any]]:
    """What operators did, oldest first."""
    try:
        topic = home.topic(f"{name}-actions")
    except UnknownTopic:
        return []
    return [{"at": r.timestamp, **msgspec.json.decode(r.value or b"{}")} for r in topic.records()]
