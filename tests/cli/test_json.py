"""Every command takes --json, and prints one JSON document then; `tail` prints one a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.events import Event
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.deliver.dead_letters import bury
from tailrace.pipeline.operate import ledger
from tailrace.pipeline.runtime.status import Status
from tailrace.pipeline.runtime.trouble import Trouble
from tests.cli.runs import Cli
from tests.cli.test_main import commands
from tests.cli.test_stream import User
from tests.pipeline.shop import filled

FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=1)
    .source("tests.pipeline.toys:source", tables=("A",), rows=2)
    .save("tests.pipeline.toys:sink", name="c0", path="{folder}/c0")
)
"""
ELSEWHERE = {
    "run": "tests/cli/pipeline/test_run.py", "step": "tests/cli/pipeline/test_status.py",
    "dead retry": "tests/cli/pipeline/test_status.py",
    "spark count": "tests/cli/test_spark.py", "spark read": "tests/cli/test_spark.py",
    "spark write": "tests/cli/test_spark.py", "topic cost": "tests/cli/topic/test_topics.py",
    "events checkpoint show": "tests/cli/events/test_checkpoint.py",
    "events checkpoint reset": "tests/cli/events/test_checkpoint.py",
    "events checkpoint override": "tests/cli/events/test_checkpoint.py", "serve": "tests/console/processes.py",
}  # fmt: skip
"""Those that need Spark, a consumer or many seconds are run with --json there."""

GIVEN: dict[str, str] = {
    "init": "file file --file {folder}/made.py",
    "about": "",
    "test": "{folder}/shop.py",
    "status": "shop",
    "actions": "shop",
    "metrics": "",
    "doctor": "",
    "scrub": "",
    "topic create": "more --partitions 4",
    "topic list": "",
    "topic describe": "orders",
    "topic grow": "orders 4",
    "topic set": "orders retention_ms=86400000",
    "topic delete": "doomed --yes",
    "topic append": "orders {folder}/lines.txt",
    "topic read": "orders",
    "topic tail": "orders -n 1",
    "topic export": "orders {folder}/exported",
    "topic import": "more {folder}/segments",
    "topic publish": "orders --to {folder}/lake",
    "topic quarantined": "orders",
    "topic lift": "orders --yes",
    "group list": "",
    "group describe": "billing",
    "group reset": "billing --to earliest --yes",
    "group delete": "billing --yes",
    "events append": "Order-8 {folder}/events.jsonl",
    "events list": "--category Order",
    "events categories": "",
    "events read": "Order-7",
    "events tip": "Order-7",
    "events prune": "Order-7 --until 0 --yes",
    "events stats": "Order-7",
    "events index create": "",
    "events feed": "",
    "events index status": "",
    "events index validate": "",
    "events index rebuild": "",
    "stream list": "",
    "stream describe": "User",
    "stream tail": "User -n 1",
    "stream token": "User",
    "stream copy": "User orders --once",
    "queue create": "more-mail --shards 2",
    "queue list": "",
    "queue push": "mail hello --key k",
    "queue tail": "mail -n 1",
    "queue stats": "mail",
    "queue explain": "mail 0:0",
    "queue pause": "mail",
    "queue play": "mail",
    "queue rebalance": "mail --shards 2",
    "queue replay": "mail --from 2h",
    "queue dead": "mail",
    "queue purge": "mail --yes",
    "queue work": "mail builtins:repr --drain",
    "queue delete": "mail --yes",
    "home create": "{folder}/other",
    "home info": "",
    "home copy": "{folder}/copied",
    "upkeep run": "",
    "xlog oldest": "shop",
    "xlog current": "shop",
    "xlog show": "shop 0:0",
    "offset list": "shop",
    "offset show": "shop c0",
    "offset mark": "shop c0 0:3 --why known",
    "offset delete": "shop c0 --why all --yes",
    "dead list": "shop",
    "dead show": "shop 0",
}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A home with some of everything."""
    (tmp_path / "shop.py").write_text(FILE.format(folder=tmp_path))
    (tmp_path / "lines.txt").write_text("a\nb\n")
    (tmp_path / "events.jsonl").write_text('{"type": "Placed"}\n')
    filled(tmp_path, "AABAAB", c0=3)
    with tailrace.open(tmp_path / "home") as home:
        ledger.remember(home, load(tmp_path / "shop.py"))
        ledger.report(home, "shop", Status("shop", "stopped").shown())
        bury(home, "shop", "c0", Trouble("ValueError: too long", "data", 0, 1, "A", "1"))
        home.topic("doomed", partitions=1)
        orders = home.topic("orders", partitions=2)
        orders.append([(b"k", b"v")] * 3)
        with orders.consumer("billing", max_seconds=0.1) as consumer:
            list(consumer)
        home.queue("mail", shards=1).push({"to": "ann"})
        home.events().stream("Order-7").append([Event("Placed"), Event("Paid")])
        engine = home.engine()
        engine.bind(User)
        engine.save(User(id="ann", email="ann@example.com"))
    made = Cli(tmp_path / "home")
    made("topic", "export", "orders", tmp_path / "segments")
    return made


def test_every_command_is_tried_here_or_elsewhere() -> None:
    assert {" ".join(way) for way, _ in commands()} == {*GIVEN, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert "--json" in (Path(__file__).parents[2] / file).read_text(), name


def test_what_each_command_prints(cli: Cli, tmp_path: Path) -> None:
    wrong = []
    for command, given in GIVEN.items():
        words = [*command.split(), *given.format(folder=tmp_path).split(), "--json"]
        ran = cli.process(*words) if command == "doctor" else cli(*words)  # which may find something on this machine
        try:
            json.loads(ran.out)
        except ValueError as error:
            wrong.append(f"{command}: {error}: {ran.out[:200]!r}")
    assert not wrong
