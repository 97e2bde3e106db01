"""`tailrace topic`: make, list, describe, set, delete."""

from __future__ import annotations

import re

import pytest

import tailrace
from tests.cli.runs import Cli
from tests.log.partitioning import keys_in_place


def test_a_topic_is_made_with_its_home_and_listed(cli: Cli) -> None:
    assert cli("topic", "create", "orders", "-p", 4).out == "made topic 'orders' with 4 partitions\n"
    cli("topic", "append", "orders", input="a\nb\n")
    cli("topic", "create", "clicks")
    assert cli("topic", "list").rows == [
        ["TOPIC", "PARTITIONS", "RECORDS"],
        ["clicks", "1", "0"],
        ["orders", "4", "2"],
    ]
    assert cli("topic", "list", "--json").json == [
        {"name": "clicks", "partitions": 1, "records": 0},
        {"name": "orders", "partitions": 4, "records": 2},
    ]


def test_a_long_name_is_never_cut_where_there_is_no_terminal(cli: Cli) -> None:
    name = "a" * 200
    cli("topic", "create", name)
    assert cli("topic", "list").rows[1] == [name, "1", "0"]
    assert cli("topic", "describe", name).rows[0] == ["topic", name]


def test_a_home_without_topics(cli: Cli) -> None:
    cli("home", "create")
    assert cli("topic", "list").out == "no topics yet; `tailrace topic create NAME` makes one\n"
    assert cli("topic", "list", "--json").json == []


def test_a_topic_that_is_there_is_not_made_again(cli: Cli) -> None:
    cli("topic", "create", "orders", "--partitions", 2)
    assert "topic 'orders' exists already, with 2 partitions" in cli.fails("topic", "create", "orders").err


def test_describe_says_all_there_is(cli: Cli) -> None:
    cli("topic", "create", "orders", "-p", 2, "--set", "retention_ms=7d", "--set", "compression=zstd")
    cli("topic", "append", "orders", "--partition", 1, input="a\nb\n")
    shown = cli("topic", "describe", "orders").rows
    assert ["records", "2"] in shown
    assert ["groups", "none"] in shown
    assert ["retention_ms", "604,800,000"] in shown
    assert ["compact", "false"] in shown
    assert ["retention_bytes", "null"] in shown
    assert ["0", "0", "0", "0"] in shown
    assert ["1", "0", "2", "2"] in shown
    about = cli("topic", "describe", "orders", "--json").json
    assert about["settings"]["retention_ms"] == 7 * 24 * 3600 * 1000
    assert about["settings"]["compression"] == "zstd"
    assert about["offsets"] == [{"partition": 0, "floor": 0, "next": 0}, {"partition": 1, "floor": 0, "next": 2}]
    fields = {"name", "id", "partitions", "created", "records", "compacted", "settings", "offsets", "groups"}
    assert {*about} == fields


def test_what_others_hold_is_counted(cli: Cli) -> None:
    cli("topic", "create", "orders")
    assert "at most" not in cli("topic", "describe", "orders").out.lower()


def test_what_a_compacted_topic_holds_is_an_upper_bound(cli: Cli) -> None:
    cli("topic", "create", "orders", "--set", "compact=true")
    cli("topic", "append", "orders", input="a\nb\n")
    out = cli("topic", "describe", "orders").out
    assert re.search(r"records +at most 2$", out, re.MULTILINE)
    assert re.search(r"PARTITION +FLOOR +NEXT +AT MOST RECORDS", out)
    cli("topic", "set", "orders", "compact=false")
    assert cli("topic", "describe", "orders", "--json").json["compacted"], "what it was once shows still"


def test_a_topic_grows(cli: Cli) -> None:
    cli("topic", "create", "orders", "-p", 2)
    assert cli("topic", "grow", "orders", 5).out == "topic 'orders' has 5 partitions, and had 2\n"
    assert "nothing was changed" in cli("topic", "grow", "orders", 5).out
    about = cli("topic", "grow", "orders", 6, "--json").json
    assert (about["partitions"], len(about["offsets"]), about["grown"]) == (6, 6, True)
    assert "'orders' has 6 partitions and cannot have fewer, 2" in cli.fails("topic", "grow", "orders", 2).err


def test_a_number_of_partitions_that_is_none(cli: Cli) -> None:
    assert "'many' is no whole number" in cli.fails("topic", "create", "orders", "--partitions", "many", code=2).err
    cli("topic", "create", "orders", "--partitions", 2, "--set", "retention_ms=7d", "--set", "retention_bytes=1GiB")
    kept = cli("topic", "describe", "orders", "--json").json["settings"]
    assert (kept["retention_ms"], kept["retention_bytes"]) == (7 * 86_400_000, 1 << 30)
    assert "'three' is no whole number" in cli.fails("topic", "grow", "orders", "three", code=2).err


@pytest.mark.parametrize(("word", "here"), [("consume", "'read' or 'tail'"), ("produce", "'append'"), ("ls", "'list'")])
def test_what_other_systems_call_a_command_leads_to_it(cli: Cli, word: str, here: str) -> None:
    said = " ".join(cli.fails("topic", word, "orders", code=2).err.replace("│", " ").split())
    assert f"No such command '{word}'. Did you mean {here}?" in said


def test_settings_are_changed(cli: Cli) -> None:
    cli("topic", "create", "orders", "--set", "retention-ms=1d")
    now = cli("topic", "set", "orders", "retention_ms=null", "max_record_bytes=1MiB", "compact=true", "--json").json
    assert (now["retention_ms"], now["max_record_bytes"], now["compact"]) == (None, 1 << 20, True)
    assert ["max_record_bytes", "2,000"] in cli("topic", "set", "orders", "max_record_bytes=2kb").rows
    assert cli("topic", "describe", "orders", "--json").json["settings"]["max_record_bytes"] == 2000


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("retention=7d", "a topic has no 'retention'; did you mean 'retention_ms'?"),
        ("retention_ms", "'retention_ms' is no setting; write NAME=VALUE"),
        ("retention_ms=0", "a topic's retention_ms is a number from 1"),
        ("retention_ms=soon", "a topic's retention_ms is a whole number, or null for no limit, not 'soon'"),
        ("compression=zip", "a topic's compression is none, lz4 or zstd, not 'zip'"),
        ("partitioner=crc32", "a topic's partitioner is sha256 or murmur2, not 'crc32'"),
    ],
)
def test_a_bad_setting_is_refused(cli: Cli, setting: str, said: str) -> None:
    cli("topic", "create", "orders")
    assert said in cli.fails("topic", "set", "orders", setting).err
    assert said in cli.fails("topic", "create", "other", "--set", setting).err
    assert cli("topic", "list", "--json").json == [{"name": "orders", "partitions": 1, "records": 0}]


def test_a_topic_keeps_its_partitioner(cli: Cli) -> None:
    cli("topic", "create", "orders", "-p", 5, "--set", "partitioner=murmur2")
    cli("topic", "append", "orders", "--key", "id", input="".join(f'{{"id": "k{n}"}}\n' for n in range(100)))
    with tailrace.open(cli.home) as home:
        assert keys_in_place(home.topic("orders")) == 100
    assert "stays as it was made, here murmur2" in cli.fails("topic", "set", "orders", "partitioner=sha256").err
    assert ["partitioner", "murmur2"] in cli("topic", "set", "orders", "partitioner=murmur2", "compact=true").rows


def test_delete_asks_first(cli: Cli) -> None:
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="a\n")
    asked = cli.fails("topic", "delete", "orders", input="n\n")
    assert "Delete topic 'orders' and its 1 record, for good? [y/N]" in asked.err
    assert "deleted" not in asked.out
    cli.fails("topic", "delete", "orders", input="")
    assert len(cli("topic", "list", "--json").json) == 1
    assert cli("topic", "delete", "orders", input="y\n").out.endswith("deleted topic 'orders' with 1 record\n")
    assert cli("topic", "list", "--json").json == []


def test_delete_with_yes_does_not_ask(cli: Cli) -> None:
    cli("topic", "create", "orders")
    assert cli("topic", "delete", "orders", "--yes", "--json").json == {"deleted": "orders", "records": 0}
    assert "there is no topic 'orders'" in cli.fails("topic", "delete", "orders", "-y").err


def test_a_topic_that_is_not_there_has_a_nearest_one(cli: Cli) -> None:
    cli("topic", "create", "orders")
    for command in ("describe", "tail", "read", "delete"):
        assert "did you mean 'orders'?" in cli.fails("topic", command, "ordes").err


def test_a_home_that_is_not_there_is_not_made_by_looking(cli: Cli) -> None:
    for command in (("list",), ("read", "a"), ("append", "a"), ("delete", "a", "--yes")):
        assert "there is no home in" in cli.fails("topic", *command, input="a\n").err
    assert "tailrace home create" in cli.fails("topic", "list").err
    assert not (cli.home / "").exists()  # type: ignore[operator]
