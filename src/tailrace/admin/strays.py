"""Strays: objects of a home that no topic can ever refer to.  They are no damage; a scrub reports and keeps them."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

from tailrace.admin.report import Report
from tailrace.coordination import guard
from tailrace.log.format import head as heads
from tailrace.storage.calls import Store


def note_strays(store: Store, known: Container[str], report: Report) -> None:
    """Add notes about objects that tailrace has not written, and about those of deleted topics.

    `known` has the ids of existing topics."""
    buried = {grave["id"] for grave in store.run(guard.read_all("$Deleted"))}

    @cache
    def gone(id: str) -> bool:
        if id in known or id in buried:
            return False
        return store.run(guard.read(heads.head_key(id))) is None  # the topic may be newer than `known`

    foreign: list[str] = []
    left: list[str] = []
    for one in store.objects.list("topics/"):
        if (parts := heads.parts_of(one.name)) is None:
            foreign.append(one.name)
        elif gone(parts[0]):
            left.append(one.name)
    _note(report, foreign, "not of tailrace's making")
    _note(report, left, "of topics that are gone, put there by writers that came too late")


def _note(report: Report, names: list[str], what: str) -> None:
    if len(names) == 1:
        report.notes.append(f"the object {names[0]} is {what}; it can be removed")
    elif names:
        report.notes.append(f"{len(names):,} objects are {what}, such as {names[0]}; they can be removed")
