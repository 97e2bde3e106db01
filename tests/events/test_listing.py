"""Streams and categories can be listed, page by page; and an archive is another home."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import BadName, BadSetting, Closed
from tailrace.events import Event, Events
from tailrace.storage.calls import Store
from tests.cli.runs import Cli


def test_streams_are_listed_and_nothing_else_is(store: Store) -> None:
    events = Events(store, max_events=1)
    names = [f"Cart-{n:03d}" for n in range(60)] + ["Order-1", "Order-1_a"]
    for name in names:
        for _ in range(3):
            events.stream(name).append([Event("Placed")])
    assert sorted(events.streams()) == names
    assert sorted(events.streams("Order")) == ["Order-1", "Order-1_a"]
    assert list(events.streams("Ord")) == []
    assert events.categories() == {"Cart": 60, "Order": 2}
    some = list(islice(events.streams("Cart"), 25))
    assert some + list(events.streams("Cart", after=some[-1])) == list(events.streams("Cart"))
    with pytest.raises(BadName, match="not 'Cart-1'"):
        list(events.streams("Cart-1"))


def test_one_page_is_held_at_a_time(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        for n in range(40):
            home.events().stream(f"Cart-{n}").append([Event("Placed", os.urandom(100_000))])
        pages = []
        scan = home.store.table.scan
        home.store.table.scan = lambda after=None: pages.append(1) or scan(after)  # type: ignore[method-assign]
        next(home.events().streams())
        assert len(pages) == 1, "the rest is read when it is asked for"
        assert len(list(home.events().streams())) == 40
        assert len(pages) > 3


def test_the_archive_is_a_home_or_its_url(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home, tailrace.open(tmp_path / "given") as given:
        for archive in (given, tmp_path / "url", str(tmp_path / "url")):
            stream = home.events(archive=archive, max_events=1).stream("Cart-1")
            for n in range(3):
                stream.append([Event("Placed", b"%d" % n)])
            stream.prune(stream.version - 2)
        assert [event.index for event in home.events(archive=tmp_path / "url").stream("Cart-1").read()] == [
            *range(2, 9)
        ]
        assert [event.index for event in home.events().stream("Cart-1").read()] == [8]
        opened = home.events(archive=tmp_path / "url")
        with pytest.raises(BadSetting, match="cannot be its own archive"):
            home.events(archive=home)
        with pytest.raises(BadSetting, match="an archive is a home, or the URL of one, not a int"):
            home.events(archive=7)  # type: ignore[arg-type]
        assert given.scrub().clean, "calves without a Tip are no damage in an archive"
    with pytest.raises(Closed):
        list(opened.stream("Cart-1").read())


def test_at_the_command_line(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    with tailrace.open(tmp_path / "home") as home:
        stream = home.events(max_events=1).stream("Cart-1")
        for n in range(3):
            stream.append([Event("Placed", b"%d" % n)])
        home.events().stream("Order-1").append([Event("Placed")])
    assert cli("events", "list").out.split() == ["Cart-1", "Order-1"]
    assert cli("events", "list", "--category", "Cart", "--json").json == ["Cart-1"]
    assert cli("events", "list", "--limit", 1, "--after", "Cart-1").out.split() == ["Order-1"]
    assert cli("events", "categories").rows == [["CATEGORY", "STREAMS"], ["Cart", "1"], ["Order", "1"]]
    cli("events", "prune", "Cart-1", "--until", 1, "--archive", tmp_path / "archive", "--yes")
    assert len(cli("events", "read", "Cart-1").out.splitlines()) == 1
    assert len(cli("events", "read", "Cart-1", "--archive", tmp_path / "archive").out.splitlines()) == 3
