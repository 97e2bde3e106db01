"""`tailrace events`: append, read, tip, prune, stats."""

from __future__ import annotations

import json

import pytest

from tests.cli.runs import Cli

LINES = "".join(json.dumps({"type": "A", "data": {"n": n}, "id": f"i{n}"}) + "\n" for n in range(5))


def test_events_go_in_and_come_out(cli: Cli) -> None:
    assert cli("events", "append", "Cart-1", input=LINES).out == "appended 5 events to 'Cart-1', now at version 5\n"
    events = [json.loads(line) for line in cli("events", "read", "Cart-1").out.splitlines()]
    assert [(e["index"], e["type"], e["id"], e["data"]) for e in events] == [
        (n, "A", f"i{n}", f'{{"n":{n}}}') for n in range(5)
    ]
    cli("events", "append", "Cart-2", input=cli("events", "read", "Cart-1").out)
    last = cli("events", "read", "Cart-2", "--backwards", "--limit", 2).out.splitlines()
    assert [json.loads(line)["index"] for line in last] == [4, 3]
    some = cli("events", "read", "Cart-2", "--from", 1, "--to", 3).out.splitlines()
    assert [json.loads(line)["index"] for line in some] == [1, 2]


def test_bytes_and_texts(cli: Cli) -> None:
    cli(
        "events",
        "append",
        "Cart-1",
        input='{"type": "A", "data": {"base64": "/w=="}, "meta": "text"}\n\n{"type": "B"}\n',
    )
    one, two = (json.loads(line) for line in cli("events", "read", "Cart-1").out.splitlines())
    assert (one["data"], one["meta"]) == ({"base64": "/w=="}, "text")
    assert {*two} == {"index", "type", "time", "id"}


def test_the_expected_version(cli: Cli) -> None:
    done = cli("events", "append", "Cart-1", "--expected", 0, "--batch", 2, "--json", input=LINES).json
    assert done == {"stream": "Cart-1", "events": 5, "version": 5}
    assert cli("events", "append", "Cart-1", "--expected", 0, "--json", input=LINES).json["version"] == 5
    said = cli.fails("events", "append", "Cart-1", "--expected", 3, input='{"type": "B"}\n').err
    assert "'Cart-1' is at version 5, not 3" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 is no JSON"),
        ("5", "line 1 is no event"),
        ('{"type": 5}', "line 1 is no event"),
        ('{"type": ""}', "not empty"),
        ('{"type": "A", "date": 1}', "line 1 has 'date'"),
        ('{"type": "A", "data": {"base64": "?"}}', "no base64"),
        ('{"type": "A", "data": [NaN]}', "NaN"),
        ("", "no event to append"),
    ],
)
def test_bad_lines(cli: Cli, line: str, said: str) -> None:
    assert said in cli.fails("events", "append", "Cart-1", input=line + "\n").err
    assert cli("events", "read", "Cart-1").out == ""


def test_what_was_appended_before_a_bad_line_is_told(cli: Cli) -> None:
    failed = cli.fails("events", "append", "Cart-1", "--batch", 2, input=LINES + "{\n")
    assert "4 events appended before this" in failed.err
    assert cli("events", "tip", "Cart-1", "--json").json["version"] == 4


def test_tip_prune_and_stats(cli: Cli) -> None:
    cli("events", "append", "Cart-1", input=LINES)
    assert cli("events", "tip", "Cart-2").out == "nothing was ever appended to 'Cart-2'\n"
    assert ["version", "5"] in cli("events", "tip", "Cart-1").rows
    tip = cli("events", "tip", "Cart-1", "--json").json
    assert (tip["version"], tip["events"], tip["lowest"], tip["unfolds"]) == (5, 5, 0, [])
    cli.fails("events", "prune", "Cart-1", "--until", 1, input="n\n")
    assert cli("events", "prune", "Cart-1", "--until", 1, "--yes").out == (
        "removed 2 events of 'Cart-1'; the lowest index is 2\n"
    )
    pruned = cli("events", "prune", "Cart-1", "--until", 2, "-y", "--json").json
    assert pruned == {"stream": "Cart-1", "deleted": 1, "deferred": 0, "lowest": 3}
    stats = cli("events", "stats", "Cart-1", "--json").json
    assert (stats["version"], stats["events"], stats["types"]) == (5, 2, {"A": {"events": 2, "bytes": 14}})
    assert ["A", "2,", "14", "bytes"] in cli("events", "stats", "Cart-1").rows


def test_a_bad_name_is_refused(cli: Cli) -> None:
    cli("home", "create")
    for name in "cart", "-1", "$Log-1":
        assert "stream's name" in (err := cli.fails("events", "tip", "--", name).err) or "'$'" in err
