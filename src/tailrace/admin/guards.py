"""Scrub of guard items and of holders' positions: both are compared with the heads of the topics.

A guard item has the id and the page of the last chunk that was appended in one transaction with it: those of named
producers, of stream copies, and of a pipeline's readers, copied pieces and topic sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.coordination import guard
from tailrace.errors import UnknownTopic
from tailrace.log.integrity.damage import Damage
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.retention_holds import holds_key
from tailrace.log.write.lookup import find
from tailrace.log.write.source_append import log_name
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key

GUARDS = ("$Producer-", "$Reader-", "$Pieces-", "$Sink-", "$StreamCopy-")
PRODUCER, READER, PIECES, SINK, STREAM_COPY = GUARDS
CHUNK_ID_DIGITS = 24
"""The length of a chunk's id.  A reader or sink that writes its guard without records stores a shorter id, or none."""


def scrub_guard(key: Key, names: Mapping[str, str], notes: list[str]) -> Steps[list[Damage]]:
    """Check that the last chunk that a guard item names is in the log, unless retention has removed it.

    `names` has the topics' names by id.  Returns the damage; a topic sink's missing chunk is added to `notes`."""
    seen: Item | None = None
    while True:
        item = yield from guard.truth(key)
        if item is None or len(item["id"]) != CHUNK_ID_DIGITS:
            return []
        if item == seen:
            break
        seen = item
        ids = list(_topics(key, item, names))
        gone = 0
        for id in ids:
            try:
                if (yield from _is_in(TopicLog(id, id), item)):
                    return []
            except UnknownTopic:
                gone += 1
        if gone == len(ids):
            return []
    where, text = f"item {key.p}/{key.i}", "is stored by its own account, and is not in the log"
    if key.p.startswith(SINK):
        notes.append(f"{where}: its last batch {text} of any topic; unless its topic was deleted, records are lost")
        return []
    what = f"its batch {item['seq']}" if "seq" in item else f"what was copied ({item['records']} records)"
    return [Damage("producer", f"{what} {text}", ", ".join(names[id] for id in ids if id in names), where)]


def _is_in(log: TopicLog, item: Item) -> Steps[bool]:
    head = yield from log.head()
    return (yield from find(log, head, item["id"], -1, [item["page"]])) is not None


def _topics(key: Key, item: Item, names: Mapping[str, str]) -> Iterable[str]:
    """The ids of the topics of which one must have the guard's chunk."""
    if key.p.startswith(PRODUCER):
        return item.get("topics") or [key.p.removeprefix(PRODUCER).partition("_")[0]]
    if key.p.startswith(STREAM_COPY):
        return list(item["topics"])
    if key.p.startswith(SINK):
        return names
    name = log_name(key.p.removeprefix(READER).removeprefix(PIECES))
    return [id for id, other in names.items() if other == name]


def scrub_holders(log: TopicLog, notes: list[str]) -> Steps[list[Damage]]:
    """Check that no holder of a topic, such as a pipeline's writer, has acknowledged records that were never in it."""
    said = yield from guard.read(holds_key(log.id))
    marks: list[Item] = []
    for p in said["by"] if said is not None else ():
        marks += yield from guard.read_all(p)
    try:
        head = yield from log.head()  # after the marks: its ends only rise
    except UnknownTopic:
        return []
    out = []
    for mark in marks:
        at, end = max([mark.get("low", -1), *mark.get("ahead", {}).values()]), head.next.get(mark["i"], 0)
        if at < end:
            continue
        text = f"everything up to {at} of partition {mark['i']} is acknowledged, which ends at {end}"
        if mark.get("word"):
            notes.append(f"item {mark['p']}/{mark['i']}: {text}, as an operator has said")
        else:
            out.append(Damage("position", text, log.name, f"item {mark['p']}/{mark['i']}"))
    return out
