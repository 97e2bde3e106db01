"""`tailrace stream`: tables and their changes, in a folder and in DynamoDB."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tailrace
from tailrace.cli import stream as cli_stream
from tailrace.cli.stream import descent
from tailrace.storage.changes import Shard
from tailrace.streams import Add, Stream, hash_key, model, range_key
from tailrace.testing import SimulatedChanges
from tests.cli.runs import PROGRAM, Cli
from tests.cli.terminal import Terminal
from tests.cli.test_terminal import shown
from tests.servers import aws
from tests.servers.aws import new_bucket
from tests.servers.process import Server
from tests.streams.test_consumer import until


@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    email: str
    visits: int = 0
    photo: bytes | None = None


@model(table="Sensor.Reading", stream={"keys"})
class Reading:
    sensor: str = hash_key()
    at: Decimal = range_key()


@model()
class Quiet:
    id: bytes = hash_key()


@pytest.fixture
def users(cli: Cli) -> Cli:
    """A home with three tables, and three changes of one."""
    with tailrace.open(cli.home) as home:
        engine = home.engine()
        engine.bind(User, Reading, Quiet)
        engine.save(User(id="ann", email="a\x1b[31m", photo=b"\xff"))
        engine.update(User, Add("visits", 2**70), id="ann")
        engine.delete(User(id="ann", email=""))
        engine.save(Reading(sensor="s", at=Decimal("1.5")))
    return cli


def test_list_and_describe(users: Cli) -> None:
    assert users("stream", "list").rows == [
        ["TABLE", "KEY", "STREAM"],
        ["Quiet", "id", "(bytes)", "none"],
        ["Sensor.Reading", "sensor", "(text),", "at", "(number)", "keys"],
        ["User", "id", "(text)", "new,", "old"],
    ]
    assert [one["stream"] for one in users("stream", "list", "--json").json] == [None, ["keys"], ["new", "old"]]
    described = users("stream", "describe", "User", "--json").json
    assert described["hash_key"] == {"name": "id", "type": "text"}
    assert [(shard["parent"], shard["last"]) for shard in described["shards"]] == [(None, None)]
    assert described["shards"][0]["id"] in users("stream", "describe", "User").out
    assert "changes carry  none" in users("stream", "describe", "Quiet").out


def test_shards_are_shown_below_their_parents() -> None:
    lines = [("a", "gone"), ("b", "a"), ("c", "a"), ("d", "b"), ("e", None), ("f", "d"), ("g", "d")]
    shards = [Shard(id, parent, "1", None) for id, parent in lines]
    shown_as = " ".join(f"{depth}{shard.id}" for depth, shard in descent(shards))
    assert shown_as == "0a 1b 1d 2f 2g 1c 0e"


def test_a_home_without_tables(cli: Cli) -> None:
    cli("home", "create", cli.home)
    assert "no tables yet" in cli("stream", "list").out
    assert cli("stream", "list", "--json").json == []


def test_tail_says_what_changed(users: Cli) -> None:
    first, second, third = (line.split("\t") for line in users("stream", "tail", "User").out.splitlines())
    assert first[1:] == ["insert", 'id="ann"', 'email="a\\u001b[31m" visits=0 photo={"base64":"/w=="}']
    assert second[1:] == ["modify", 'id="ann"', f"visits=0→{2**70}"]
    assert third[1:3] == ["remove", 'id="ann"']
    keys = users("stream", "tail", "Sensor.Reading").out.split("\t")
    assert keys[1:] == ["insert", 'sensor="s" at=1.5\n']


def test_json_has_every_digit_and_says_which_values_are_bytes(users: Cli) -> None:
    lines = [json.loads(line) for line in users("stream", "tail", "User", "--json").out.splitlines()]
    assert [line["meta"]["event"]["type"] for line in lines] == ["insert", "modify", "remove"]
    assert lines[0]["new"]["photo"] == {"base64": "/w=="}
    assert lines[0]["old"] is None
    assert lines[1]["new"]["visits"] == 2**70
    assert lines[0]["meta"]["created_at"] > 1_700_000_000_000


def test_the_newest_so_many_or_all_from_a_place(users: Cli) -> None:
    assert len(users("stream", "tail", "User", "-n", "2").out.splitlines()) == 2
    assert len(users("stream", "tail", "User", "--from", "1h").out.splitlines()) == 3
    assert users("stream", "tail", "User", "--from", "latest").out == ""


def test_a_token_is_saved_and_gone_on_with(users: Cli, tmp_path: Path) -> None:
    token = tmp_path / "token.json"
    users("stream", "token", "User", "--save", token)
    with tailrace.open(users.home) as home:
        engine = home.engine()
        engine.bind(User)
        engine.save(User(id="bob", email="b"))
    for expected in (1, 0):
        out = users("stream", "tail", "User", "--from", token, "--save", token).out
        assert len(out.splitlines()) == expected
    again = users("stream", "token", "User", "--from", token, "--json").json
    assert again["shards"] == json.loads(token.read_text())["shards"]
    assert len(users("stream", "tail", "User", "--from", json.dumps(json.loads(token.read_text()))).out) == 0


def test_what_is_wrong_with_a_token_is_said(users: Cli, tmp_path: Path) -> None:
    token = tmp_path / "token.json"
    users("stream", "token", "User", "--save", token)
    assert (
        "of the table 'User', not of 'Sensor.Reading'"
        in users.fails("stream", "token", "Sensor.Reading", "--from", token).err
    )
    token.write_text(token.read_text()[:20])
    assert "no JSON" in users.fails("stream", "tail", "User", "--from", token).err
    token.write_text("[]")
    assert "holds no token" in users.fails("stream", "tail", "User", "--from", token).err
    assert "'banana' is no place" in users.fails("stream", "tail", "User", "--from", "banana").err
    assert "is no place" in users.fails("stream", "tail", "User", "--from", "17").err


def test_a_table_without_a_stream_and_one_that_is_not_there(users: Cli) -> None:
    assert "has no change stream" in users.fails("stream", "tail", "Quiet").err
    for command in ("describe", "tail", "token"):
        assert "there is no table 'Usr' in this home; there are: Quiet" in users.fails("stream", command, "Usr").err


def test_copy_into_a_topic_goes_on_where_it_was(users: Cli) -> None:
    assert "no topic 'changes'" in (said := users.fails("stream", "copy", "User", "changes").err)
    assert "--partitions N does so here" in said
    assert "there is no file 'token.json'" in users.fails("stream", "tail", "User", "--from", "token.json").err
    assert users("stream", "copy", "User", "changes", "--once", "-p", "2").out == (
        "copied 3 changes of 'User' into 'changes', 3 in all\n"
    )
    again = users("stream", "copy", "User", "changes", "--once", "--json").json
    assert again == {"table": "User", "topic": "changes", "copied": 0, "records": 3}
    assert [record["op"] for record in users("topic", "read", "changes", "--json").json] == [
        "insert",
        "update",
        "delete",
    ]
    assert "has no change stream" in users.fails("stream", "copy", "Quiet", "changes", "--once").err


def test_a_copy_follows_until_it_is_interrupted(users: Cli) -> None:
    with Terminal([PROGRAM, "stream", "copy", "User", "changes", "-p", "1"], users.env()) as terminal:
        terminal.wait_for("Ctrl-C ends")
        with tailrace.open(users.home) as home, home.topic("changes").follow(start="earliest") as records:
            assert [next(records).op.name for _ in range(3)] == ["INSERT", "UPDATE", "DELETE"]
        terminal.interrupt()
        assert terminal.end() == 130
        assert "copied 3 changes of 'User' into 'changes', 3 in all" in shown(terminal.seen)
        assert "Traceback" not in terminal.seen


def test_following_ends_cleanly_and_leaves_its_token(users: Cli, tmp_path: Path) -> None:
    token = tmp_path / "token.json"
    command = [PROGRAM, "stream", "tail", "User", "-f", "-n", "1", "--save", str(token)]
    with Terminal(command, users.env(), columns=100) as terminal:
        before = shown(terminal.wait_for("remove"))
        assert "insert" not in before
        until(token.exists)
        at_first = token.read_text()
        with tailrace.open(users.home) as home:
            engine = home.engine()
            engine.bind(User)
            engine.save(User(id="bob", email="b"))
        terminal.wait_for("bob")
        until(lambda: token.read_text() != at_first)  # it is saved behind what was printed
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.seen
    again = users("stream", "tail", "User", "--from", token)
    assert (again.out, again.err) == ("", "table 'User' has no changes from there on\n")


def test_a_token_is_saved_again_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, ages = SimulatedChanges(), list[int]()
    stream = Stream(changes, "trim_horizon", table="t", make=lambda change: change)

    def follow(self: Stream[Any], *, seconds: float) -> list[Any]:
        if token.exists():
            ages.append(json.loads(token.read_text())["at"])
        if len(ages) == 3:
            raise KeyboardInterrupt
        changes.clock.move(seconds)
        assert next(self) is None
        return []

    token = tmp_path / "token.json"
    monkeypatch.setattr(Stream, "follow", follow)
    with pytest.raises(KeyboardInterrupt):
        cli_stream._follow(stream, False, token)
    assert ages == [ages[0], ages[0] + 3600, ages[0] + 7200]


def test_a_token_is_saved_behind_what_was_printed_and_never_further(users: Cli, tmp_path: Path) -> None:
    """`| head` takes one line and goes: what it did not get comes again with the next `--from`."""
    token = tmp_path / "token.json"
    users("stream", "token", "User", "--from", "trim_horizon", "--save", token)
    with tailrace.open(users.home) as home:
        engine = home.engine()
        engine.bind(User)
        for n in range(60):
            engine.save(User(id="busy", email=f"{n:04}" * 1000))  # more in all than a pipe holds
    command = f"'{PROGRAM}' stream tail User --from '{token}' --save '{token}' --json | head -1 > '{tmp_path / 'out'}'"
    subprocess.run(["/bin/sh", "-c", command], env=users.env(), timeout=120, check=True)
    assert (tmp_path / "out").read_text().count("\n") == 1
    assert users("stream", "tail", "User", "--from", token, "--json").out.count("\n") == 3 + 60


@pytest.mark.server
def test_a_plain_table_of_dynamodb(seaweedfs: Server, dynoxide: Server) -> None:
    home, plain, bucket = f"tailrace-{uuid4().hex}", f"plain-{uuid4().hex}", new_bucket(seaweedfs)
    query = f"table={home}&region=us-east-1&endpoint={seaweedfs.url}&table_endpoint={dynoxide.url}"
    cli = Cli(f"s3://{bucket}/home?{query}")
    env = {"AWS_ACCESS_KEY_ID": seaweedfs.key, "AWS_SECRET_ACCESS_KEY": seaweedfs.secret}
    cli("home", "create", **env)
    with aws.client(dynoxide) as dynamodb:
        dynamodb.create_table(
            TableName=plain,
            KeySchema=[{"AttributeName": "sku", "KeyType": "HASH"}, {"AttributeName": "day", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "sku", "AttributeType": "S"},
                {"AttributeName": "day", "AttributeType": "N"},
            ],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        dynamodb.put_item(TableName=plain, Item={"sku": {"S": "tea"}, "day": {"N": "7"}, "left": {"N": "1.50"}})
    listed = {one["table"]: one for one in cli("stream", "list", "--json", **env).json}
    assert listed[plain]["range_key"] == {"name": "day", "type": "number"}
    assert cli("stream", "describe", plain, "--json", **env).json["shards"]
    line = cli("stream", "tail", plain, **env).out.split("\t")
    assert line[1:] == ["insert", 'sku="tea" day=7', "left=1.5\n"]
    assert "no table 'nobody'" in cli.fails("stream", "tail", "nobody", **env).err
