"""Narrative: describes a schedule's moves in words."""

from __future__ import annotations

from typing import Any

from tailrace.storage.calls import (
    Call,
    DeleteObjects,
    Get,
    GetObject,
    ListObjects,
    Pause,
    PutObject,
    Query,
    Scan,
    Write,
)
from tailrace.storage.tables import LAST, Action, Key, Put, Update

WORDS = {
    "landed": "no answer, but it happened",
    "in flight": "no answer yet",
    "lost": "no answer, and it never happens",
    "unread": "no answer",
    "refused": "refused for now",
    "jump": "and the clock jumps",
    "twice": "arrives twice, and is answered the second time",
}


def told(move: tuple[str, Any], call: Call | None, outcome: object) -> str:
    """Describe one move: the actor, its call, and the outcome."""
    what, who = move
    if what == "shows":
        return f"       {place(who)} shows its new state"
    words = "" if call is None else said(call)
    if what == "lands":
        return f"       {words}, sent by {who[0]}, lands"
    if what == "crash":
        return f"{who:>5}: dies before: {words}"
    if what == "zombie":
        return f"{who:>5}: is started again, and lives on before: {words}"
    if isinstance(outcome, Exception) and what == "step":
        return f"{who:>5}: {words} → {type(outcome).__name__}: {outcome}"
    if isinstance(call, Get):
        words += f" → {short(outcome)}"
    return f"{who:>5}: {words}" + ("" if what == "step" else f" ({WORDS.get(what, what)})")


def said(call: Call) -> str:
    """Describe a call in words."""
    match call:
        case Get(key):
            return f"get {place(key)}"
        case Query(p, low, high, descending, limit):
            last = "last" if high == LAST else high
            return f"query {p}/{low}…{last}{' descending' * descending}{f' limit {limit}' if limit else ''}"
        case Scan(after):
            return f"scan from {place(after)}" if after else "scan"
        case Write(actions):
            return " + ".join(map(acted, actions))
        case PutObject(name):
            return f"put object {name}"
        case GetObject(name):
            return f"get object {name}"
        case DeleteObjects(names):
            return f"delete objects {', '.join(names)}"
        case ListObjects(prefix):
            return f"list objects {prefix}"
        case Pause(attempt):
            return f"pause {attempt}"
        case _:
            return type(call).__name__.lower()


def acted(action: Action) -> str:
    """Describe an action in words, with its conditions."""
    words = f"{type(action).__name__.lower()} {place(action.key)}"
    if isinstance(action, Put):
        words += f" {short(dict(action.item))}"
    if isinstance(action, Update):
        words += " " + ", ".join(short(change) for change in action.changes)
    return words + (f" if {', '.join(map(short, action.when))}" if action.when else "")


def place(key: Key) -> str:
    """Describe a key in words."""
    return f"{key.p}/{'last' if key.i == LAST else key.i}"


def short(value: object) -> str:
    """Return a value in words of a schedule, cut off if it is long."""
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"
