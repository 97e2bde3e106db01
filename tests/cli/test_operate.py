"""A pipeline's operator at the command line: look, mark, step, retry; every act recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.pipeline import ledger, operator, stepping
from tailrace.pipeline.deadletters import bury
from tailrace.pipeline.pipeline import load
from tailrace.pipeline.status import Sink, Status
from tailrace.pipeline.trouble import Trouble
from tests.cli.runs import Cli
from tests.pipeline.shop import filled
from tests.pipeline.toys import rows

FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=1)
    .source("tests.pipeline.toys:source", tables=())
    .save("tests.pipeline.toys:sink", name="c0", path="{folder}/c0", bad=5)
)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A pipeline with six messages, of which c0 has four."""
    (tmp_path / "c0").mkdir()
    (tmp_path / "shop.py").write_text(FILE.format(folder=tmp_path))
    filled(tmp_path, "AABAAB", c0=3)
    with tailrace.open(tmp_path / "home") as home:
        ledger.remember(home, load(tmp_path / "shop.py"))
        bury(home, "shop", "c0", Trouble("ValueError: too long", "data", 0, 1, "A", "1"))
    return tmp_path


@pytest.fixture
def cli(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(stepping, "WAIT", 0.1)
    return Cli(shop / "home")


def test_the_commit_log(cli: Cli) -> None:
    assert cli("xlog", "oldest", "shop", "--json").json == {"0": 0}
    assert cli("xlog", "current", "shop", "--json").json == {"0": 5}
    shown = [json.loads(line) for line in cli("xlog", "show", "shop", "0:4", "0:5").out.splitlines()]
    assert [(m["offset"], m["namespace"], m["id"], m["op"]) for m in shown] == [
        (4, "A", "4", "insert"),
        (5, "B", "5", "insert"),
    ]
    assert cli("xlog", "show", "shop", "0:4", "0:5", "--json").json == shown
    assert "a message is named PARTITION:OFFSET" in cli.fails("xlog", "show", "shop", "four").err
    assert "has never run in" in cli.fails("xlog", "oldest", "shopp").err


def test_offsets(cli: Cli) -> None:
    assert cli("offset", "list", "shop", "--json").json == [{"writer": "c0", "acknowledged": 4, "pending": 2}]
    assert cli("offset", "show", "shop", "c0").rows[1:] == [["0", "(all)", "3"]]
    assert "has no writer 'c1'; it has: c0" in cli.fails("offset", "show", "shop", "c1").err
    marked = cli("offset", "mark", "shop", "c0", "0:4", "--why", "known", "--json").json
    assert marked == {"0": {"low": 4, "ahead": {}}}
    assert "no message 0:9" in cli.fails("offset", "mark", "shop", "c0", "0:9", "--why", "known").err
    assert cli.fails("offset", "mark", "shop", "c0", "0:1", "--why", "again", input="n\n").code == 1
    cli("offset", "mark", "shop", "c0", "0:1", "--why", "again", "--yes")
    assert cli("offset", "delete", "shop", "c0", "--why", "all", "--yes", "--json").json == {
        "0": {"low": -1, "ahead": {}}
    }
    did = [(n["what"], n["why"]) for n in cli("actions", "shop", "--json").json]
    assert did == [("mark", "known"), ("mark", "again"), ("delete offsets", "all")]
    assert "delete offsets" in cli("actions", "shop").out


def test_steps(cli: Cli, shop: Path) -> None:
    ran = cli.fails("step", shop / "shop.py", "c0", "--count", "5", "--why", "looking")
    assert ran.out.splitlines() == [
        "0:4  insert A 4  delivered",
        "0:5  insert B 5  failed: ValueError: cannot hold id 5",
    ]
    assert "1 of 2 messages failed" in ran.err
    assert [row[1] for row in rows(shop / "c0")] == ["4"]
    cli("offset", "mark", "shop", "c0", "0:5", "--why", "never mind")
    assert cli("step", shop / "shop.py", "c0", "--why", "looking").out == "nothing is pending for c0\n"
    assert cli("step", shop / "shop.py", "c0", "--why", "looking", "--json").json == []


def test_dead_letters(cli: Cli, shop: Path) -> None:
    (letter,) = cli("dead", "list", "shop", "--json").json
    assert (letter["number"], letter["offset"], letter["error"]) == (0, 1, "ValueError: too long")
    assert cli("dead", "show", "shop", 0).json["message"]["id"] == "1"
    (done,) = cli("dead", "retry", shop / "shop.py", 0, "--why", "mended", "--json").json
    assert (done["message"], done["outcome"]) == ("0:1", "delivered")
    assert cli("dead", "list", "shop", "--json").json == []
    assert cli("dead", "retry", shop / "shop.py", "--why", "all").out == "there are no dead letters\n"
    assert [n["what"] for n in cli("actions", "shop", "--json").json] == ["retry"]


def test_what_is_cut_off_in_the_middle_is_recorded(cli: Cli, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tailrace.pipeline.offsets.override", killed)
    with tailrace.open(shop / "home") as home:
        for act in (
            lambda: operator.mark(home, "shop", "c0", 0, 4, "known"),
            lambda: operator.forget(home, "shop", "c0", "all of it"),
        ):
            with pytest.raises(KeyboardInterrupt):
                act()
        assert [n["what"] for n in ledger.notes(home, "shop")] == ["mark", "delete offsets"]


def test_the_status_says_what_is_wrong_with_the_source(cli: Cli, shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        status = Status("shop", "stopped", "the slot is lost")
        status.sinks = {"c0": Sink("ended"), "c1": Sink("stopped", error="disk full")}
        ledger.report(home, "shop", status.shown())
    shown = cli("status").out.splitlines()
    assert shown[1].endswith("the slot is lost")
    assert shown[2].endswith("disk full")
