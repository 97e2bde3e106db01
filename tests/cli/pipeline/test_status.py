"""A pipeline's operator at the command line: look, mark, step, retry; every act recorded."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.coordination.lease import Lease
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.deliver.dead_letters import bury
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import ledger, operator, step
from tailrace.pipeline.runtime.status import SinkStatus, Status
from tailrace.pipeline.runtime.trouble import Trouble
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
    _file(tmp_path)
    filled(tmp_path, "AABAAB", c0=3)
    with tailrace.open(tmp_path / "home") as home:
        ledger.remember(home, load(tmp_path / "shop.py"))
        for namespace in "AB":
            CommitLog(home, "shop", partitions=1).set_phases({namespace: {"phase": "sync", "first": 0, "count": 0}})
        bury(home, "shop", "c0", Trouble("ValueError: too long", "data", 0, 1, "A", "1"))
    return tmp_path


@pytest.fixture
def cli(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(step, "MAX_WAIT_FOR_RUN_SECONDS", 0.1)
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
    everything = [json.loads(line) for line in cli("xlog", "show", "shop").out.splitlines()]
    assert [m["offset"] for m in everything] == [0, 1, 2, 3, 4, 5]
    assert cli("xlog", "show", "shop", "-n", 2, "--json").json == everything[:2]
    assert "a message is named PARTITION:OFFSET" in cli.fails("xlog", "show", "shop", "four").err
    assert "has never run in" in cli.fails("xlog", "oldest", "shopp").err


def test_offsets(cli: Cli) -> None:
    assert cli("offset", "list", "shop", "--json").json == [{"writer": "c0", "acknowledged": 4, "pending": 2}]
    assert cli("offset", "show", "shop", "c0").rows[1:] == [["A", "0:3"], ["B", "0:3"]], "per namespace"
    assert cli("offset", "show", "shop", "c0", "--json").json["0"]["namespaces"] == {"A": 3, "B": 3}
    cli("offset", "mark", "shop", "c0", "0:5", "--namespace", "B", "--why", "a bad order")
    assert cli("offset", "show", "shop", "c0").rows[1:] == [["A", "0:3"], ["B", "0:5"]]
    cli("offset", "mark", "shop", "c0", "0:3", "--why", "as it was")
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
    assert did[2:] == [("mark", "known"), ("mark", "again"), ("delete offsets", "all")]
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
    assert cli("dead", "show", "shop", 0, "--json").json["message"]["id"] == "1"
    assert ["error", "ValueError:", "too", "long"] in cli("dead", "show", "shop", 0).rows, "not JSON, unless asked for"
    (done,) = cli("dead", "retry", shop / "shop.py", 0, "--why", "mended", "--json").json
    assert (done["message"], done["outcome"]) == ("0:1", "delivered")
    assert cli("dead", "list", "shop", "--json").json == []
    assert cli("dead", "retry", shop / "shop.py", "--why", "all").out == "there are no dead letters\n"
    assert [n["what"] for n in cli("actions", "shop", "--json").json] == ["retry"]


def test_what_is_cut_off_in_the_middle_is_recorded(cli: Cli, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tailrace.pipeline.deliver.offsets.override", killed)
    with tailrace.open(shop / "home") as home:
        for act in (
            lambda: operator.mark(home, "shop", "c0", 0, 4, "known"),
            lambda: operator.forget(home, "shop", "c0", "all of it"),
        ):
            with pytest.raises(KeyboardInterrupt):
                act()
        assert [n["what"] for n in ledger.notes(home, "shop")] == ["mark", "delete offsets"]


def test_by_its_file_a_pipeline_is_looked_for_in_the_home_that_the_file_names(shop: Path) -> None:
    cli = Cli("")
    assert cli("offset", "list", shop / "shop.py", "--json").json[0]["pending"] == 2
    assert cli("xlog", "current", shop / "shop.py", "--json").json == {"0": 5}
    with tailrace.open(shop / "home") as home:
        ledger.report(home, "shop", Status("shop", "stopped").shown())
    assert cli("status", shop / "shop.py", "--json").json["state"] == "stopped"
    assert "there is no home in" in cli.fails("status", shop / "shop.py", "--home", shop / "elsewhere").err
    assert "the pipeline's file, given in place of its name" in cli.fails("offset", "list", "shop").err


def test_a_run_that_was_killed_is_shown_as_one(cli: Cli, shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        made = Status("shop", "following")
        made.sinks = {"c0": SinkStatus("running", lag=2, oldest=int((time.time() - 100) * 1000))}
        with Lease(home.store, "pipeline-shop") as lease:
            lease.acquire()
            ledger.report(home, "shop", made.shown())
            assert cli("status", "shop", "--json").json["state"] == "following"
        shown = cli("status", "shop", "--json").json
    assert shown["state"] == "not running (was following)"
    assert 100 <= shown["sinks"]["c0"]["age"] < 1000


def test_an_id_that_is_not_utf8(tmp_path: Path) -> None:
    row = make_rows("A", pa.record_batch({"id": pa.array([b"\xff\x00"]), "v": pa.array([b"\xfe"])}), ["id"])
    with tailrace.open(tmp_path) as home:
        log = CommitLog(home, "shop", partitions=1)
        log.begin(0)
        log.take_in([row], 0)
        ledger.remember(home, load(_file(tmp_path)))
    ran = Cli(tmp_path).process("xlog", "show", "shop", "--json", PYTHONIOENCODING="utf-8:surrogateescape")
    assert ran.json[0]["id"] == {"base64": "/wA="}, ran
    assert ran.json[0]["data"] == {"id": "/wA=", "v": "/g=="}


def _file(folder: Path) -> Path:
    (folder / "shop.py").write_text(FILE.format(folder=folder))
    return folder / "shop.py"


def test_a_pipeline_that_never_got_under_way_hides_no_other(cli: Cli, shop: Path) -> None:
    """Its first run ended between its name in the list and its first status: a folder of a sink had no rights."""
    (shop / "other.py").write_text(FILE.format(folder=shop).replace('"shop"', '"other"'))
    with tailrace.open(shop / "home") as home:
        ledger.remember(home, load(shop / "other.py"))
        ledger.report(home, "shop", Status("shop", "stopped", sinks={"c0": SinkStatus("ended")}).shown())
    shown = cli("status")
    assert "shop" in shown.out
    assert "the first run of the pipeline 'other' has ended before it began; the next one says why" in shown.err
    assert [one["pipeline"] for one in cli("status", "--json").json] == ["shop"]
    with tailrace.open(shop / "home") as home, Lease(home.store, "pipeline-other") as lease:
        assert lease.acquire()
        assert "has only just begun; ask again in a second" in cli.fails("status", "other").err


def test_the_status_says_what_is_wrong_with_the_source(cli: Cli, shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        status = Status("shop", "stopped", "the slot is lost")
        status.sinks = {"c0": SinkStatus("ended"), "c1": SinkStatus("stopped", error="disk full")}
        ledger.report(home, "shop", status.shown())
    shown = cli("status").out.splitlines()
    assert shown[1].endswith("the slot is lost")
    assert shown[2].endswith("disk full")


def test_the_status_says_how_many_messages_failed_and_were_passed(cli: Cli, shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        status = Status("shop", "following")
        status.sinks = {"c0": SinkStatus("running", skipped=1)}
        ledger.report(home, "shop", status.shown())
    assert cli("status").out.splitlines()[1].endswith("1 message failed, as on_error allows, and not delivered")


def test_the_trouble_of_one_writer_is_not_shown_as_that_of_others(cli: Cli, shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        status = Status("shop", "stopped", "disk full; no table")
        stopped = [SinkStatus("stopped", error=error) for error in ("disk full", "no table")]
        status.sinks = {"c0": SinkStatus("ended"), "c1": stopped[0], "c2": stopped[1]}
        ledger.report(home, "shop", status.shown())
    told = [line.partition(" - ")[2].strip() for line in cli("status").out.splitlines()[1:]]
    assert told == ["", "disk full", "no table"]
