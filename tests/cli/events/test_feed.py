"""`tailrace events feed` and `tailrace events index`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.events import Event
from tailrace.feed.index import Indexer
from tailrace.feed.span import Span
from tests.cli.runs import PROGRAM, Cli
from tests.cli.terminal import Terminal
from tests.feed.test_validation import stuck


@pytest.fixture
def shop(cli: Cli) -> Cli:
    with tailrace.open(cli.home) as home:
        events = home.events()
        events.stream("Cart-1").append([Event("Added", b"tea"), Event("Removed", b"\xff\x1b")])
        events.stream("Order-1").append([Event("Placed")])
    return cli


def test_the_feed_has_at_once_what_was_appended_before(shop: Cli) -> None:
    lines = [line.split("\t") for line in shop("events", "feed").out.splitlines()]
    assert [(line[0], *line[2:]) for line in lines] == [
        ("0", "Cart-1/0", "Added", "tea"),
        ("0", "Cart-1/1", "Removed", "hex:ff1b"),
        ("1", "Order-1/0", "Placed"),
    ]
    assert shop("events", "feed", "--from", "1").out == ""
    assert shop("events", "feed", "--no-bodies", "-n", "1").out == "0\tCart-1/0\tAdded\n"


def test_filters_and_json(shop: Cli) -> None:
    assert [e["stream"] for e in shop("events", "feed", "--category", "Order", "--json").json] == ["Order-1"]
    found = shop("events", "feed", "--type", "Removed", "--stream", "Cart-1", "--json").json
    assert [(e["checkpoint"], e["index"], e["data"]) for e in found] == [(1, 1, {"base64": "/xs="})]
    assert shop("events", "feed", "--category", "Nothing", "--json").json == []
    assert [e["data"] for e in shop("events", "feed", "--no-bodies", "--json").json] == [None] * 3


def test_a_checkpoint_that_is_none(shop: Cli) -> None:
    assert "beyond the tail of the feed" in shop.fails("events", "feed", "--from", "5").err
    assert "a whole number from 0 on" in shop.fails("events", "feed", "--from", "-1").err
    assert "--from: 'many' is no checkpoint" in " ".join(
        shop.fails("events", "feed", "--from", "many", code=2).err.split()
    )


def test_nothing_to_print_is_said(shop: Cli, cli: Cli, tmp_path: Path) -> None:
    for filtered in (["--category", "Crt"], ["--from", "0", "--type", "Nothing"]):
        found = shop("events", "feed", *filtered)
        assert (found.out, found.err) == ("", "no such events\n")
    cli("home", "create", str(tmp_path / "new"))
    assert cli("events", "feed", "--home", str(tmp_path / "new")).err == "no events yet\n"


def test_following(shop: Cli) -> None:
    with Terminal([PROGRAM, "events", "feed", "-f", "--json"], shop.env(), columns=300) as terminal:
        terminal.wait_for("Placed")
        shop("events", "append", "Order-2", input='{"type": "Shipped"}\n')
        terminal.wait_for("Shipped")
        terminal.interrupt()
        assert terminal.end() == 130
        assert [json.loads(line)["stream"] for line in terminal.seen.splitlines() if line.startswith("{")][
            -1
        ] == "Order-2"


def test_status_of_an_index_that_nobody_has_made_yet_and_of_one(shop: Cli) -> None:
    assert "not yet" in shop("events", "index", "status").out
    shop("events", "feed")
    status = shop("events", "index", "status", "--json").json
    assert status["partitions"] == [{"partition": 0, "epoch": 0, "batches": 1, "checkpoint": 1}]
    assert (status["complete"], status["behind"], status["trouble"]) == (True, 0, None)
    shop("events", "append", "Order-2", input='{"type": "Shipped"}\n')
    assert "not indexed yet  1 change\n" in shop("events", "index", "status").out


def test_a_stuck_index_is_shown_validated_and_rebuilt(cli: Cli) -> None:
    stuck(Path(str(cli.home)))
    assert "`tailrace events index rebuild`" in cli.fails("events", "feed").err
    assert "trouble" in cli("events", "index", "status").out
    found = cli.fails("events", "index", "validate", code=3)
    assert "2 events not in the index, at the end of their streams:\n  S-0  4 to 5\n" in found.out
    assert "`tailrace events index rebuild` repairs this" in found.out
    assert cli("events", "index", "rebuild").out == "added 2 events to the index\n"
    assert "trouble" not in cli("events", "index", "status").out
    assert cli("events", "index", "validate", "--json").json["ok"]
    assert len(cli("events", "feed").out.splitlines()) == 23


def test_an_index_with_a_hole_is_made_again(shop: Cli) -> None:
    with tailrace.open(shop.home) as home:
        home.store.run(Indexer().ingest([Span("Cart-1", 1, ("Removed",))]))
    assert "rebuild --all` repairs this" in shop.fails("events", "index", "validate", code=3).out
    assert "aborted" in shop.fails("events", "index", "rebuild", "--all", input="n\n").err.lower()
    assert "made the index again, with 3 events" in shop("events", "index", "rebuild", "--all", "--yes").out
    assert [line.split("\t")[2] for line in shop("events", "feed").out.splitlines()] == [
        "Cart-1/0",
        "Cart-1/1",
        "Order-1/0",
    ]


def test_an_index_with_partitions(cli: Cli) -> None:
    assert cli("events", "index", "create", "-p", "2").out == "the index has 2 partitions\n"
    assert "with 2 partitions, not 3" in cli.fails("events", "index", "create", "-p", "3").err
    for n in range(6):
        cli("events", "append", f"S-{n}", input='{"type": "x"}\n')
    found = cli("events", "feed", "--json").json
    assert sorted(event["stream"] for event in found) == [f"S-{n}" for n in range(6)]
    ends = [str(one["checkpoint"]) for one in cli("events", "index", "status", "--json").json["partitions"]]
    assert cli("events", "feed", "--from", ",".join(ends)).out == ""
    assert "2 checkpoints" in cli.fails("events", "feed", "--from", "1").err
