"""Metrics: of a run and of a home, each with what it means, and each on the page about monitoring."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest

import tailrace
from tailrace.cli.home.metrics import HELP, of_home, of_run, rendered, serve
from tailrace.console.commit_times import CommitTimes
from tailrace.console.metrics import of_commits
from tailrace.errors import BadSetting, Unavailable
from tailrace.events import Event
from tailrace.pipeline.operate import ledger
from tailrace.pipeline.runtime.status import SinkStatus, Status
from tests.cli.runs import Cli
from tests.cli.test_stream import User
from tests.docs.test_examples import ROOT
from tests.queue.conftest import until


def status() -> Status:
    made = Status('sh"op', "following", records=7, delay=0.5)
    oldest = int((time.time() - 60) * 1000)
    made.sinks = {"lake": SinkStatus("running", rows=5, lag=2, oldest=oldest), "pond": SinkStatus("stopped")}
    return made


def test_a_run() -> None:
    lines = rendered(of_run(status().shown())).splitlines()
    assert r'tailrace_messages_total{pipeline="sh\"op"} 7' in lines
    assert r'tailrace_source_up{pipeline="sh\"op"} 1' in lines
    assert r'tailrace_source_delay_seconds{pipeline="sh\"op"} 0.5' in lines
    assert r'tailrace_writer_rows_total{pipeline="sh\"op",writer="lake"} 5' in lines
    assert r'tailrace_writer_lag{pipeline="sh\"op",writer="lake"} 2' in lines
    assert r'tailrace_writer_up{pipeline="sh\"op",writer="lake"} 1' in lines
    assert r'tailrace_writer_up{pipeline="sh\"op",writer="pond"} 0' in lines
    (age,) = [line.split()[-1] for line in lines if line.startswith("tailrace_writer_oldest") and "lake" in line]
    assert 60 <= float(age) < 600


def test_topics_groups_and_pipelines_of_a_home(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        orders = home.topic("orders", partitions=2)
        orders.append([(b"k", b"v")] * 3)
        with orders.consumer("billing", max_seconds=0.1) as consumer:
            list(consumer)
        orders.append([(b"k", b"v")] * 2)
        found = {(s.metric, *s.labels.values()): s.value for s in of_home(home)}
    assert found["tailrace_topic_appended_total", "orders"] == 5
    assert found["tailrace_topic_records", "orders"] == 5
    assert found["tailrace_group_lag", "billing", "orders"] in (2, 5)
    assert found["tailrace_group_oldest_seconds", "billing", "orders"] >= 0
    cli = Cli(tmp_path)
    assert 'tailrace_topic_appended_total{topic="orders"} 5\n' in cli("metrics").out
    assert {"metric": "tailrace_topic_records", "labels": {"topic": "orders"}, "value": 5} in cli(
        "metrics", "--json"
    ).json


def test_a_queue(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        queue = home.queue("mail", shards=2, attempts=1)
        queue.push_many(["a", "b"])
        queue.push("later", not_before=3600)
        with queue.tail(lambda envelope: 1 / (envelope.message == "a")):
            until(lambda: queue.stats().backlog == 0)
            until(lambda: len(queue.stats().consumers) == 1)
            found = {s.metric.removeprefix("tailrace_queue_"): s.value for s in of_home(home) if "queue" in s.labels}
        assert found["inserted_total"] == 3
        assert (found["acked_total"], found["dead_total"], found["errored_total"], found["emitted_total"]) == (
            1,
            1,
            1,
            2,
        )
        assert (found["backlog"], found["delayed"], found["oldest_seconds"], found["consumers"]) == (0, 1, 0, 1)
        queue.push("c")
        queue.pause()
        lines = rendered(of_home(home)).splitlines()
    assert 'tailrace_queue_paused{queue="mail"} 1' in lines
    assert 'tailrace_queue_backlog{queue="mail"} 1' in lines
    assert "# TYPE tailrace_queue_acked_total counter" in lines


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    board = json.loads((ROOT / "deploy" / "monitoring" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked += [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert set(re.findall(r"tailrace_\w+", " ".join(asked))) == HELP.keys()
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)), "panels overlap"


def test_every_alert_of_the_page_is_a_rule() -> None:
    rules = (ROOT / "deploy" / "monitoring" / "alerts.yml").read_text()
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    assert set(re.findall(r"tailrace_\w+", rules)) <= HELP.keys()
    alerts = re.findall(r"^\| `([^`]+)`", page.partition("## What to be woken for")[2], re.M)
    assert len(alerts) == rules.count("- alert:")
    for alert in alerts:
        assert f"expr: {alert}" in rules


def test_every_metric_has_its_meaning_and_its_line_on_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    assert {
        name: text.strip() for name, text in re.findall(r"^\| `(tailrace_\w+)`[^|]*\| (.*) \|$", page, re.M)
    } == HELP
    with tailrace.open(tmp_path) as home:
        with home.topic("orders", partitions=1).consumer("billing", max_seconds=0.1) as consumer:
            list(consumer)
        home.queue("mail").push("a")
        engine, times = home.engine(), CommitTimes()
        engine.bind(User)
        engine.save(User(id="ann", email="ann@example.com"))
        engine.consumer(User, "mailer", lambda change: None).run(until_caught_up=True)
        home.events().stream("Cart-1").append([Event("Opened")])
        home.events().feed().consumer("teller", lambda event: None).run(until_caught_up=True)
        text = rendered([*of_home(home), *of_run(status().shown()), *of_commits(times)])
    assert set(re.findall(r"^# HELP (\w+) \S", text, re.M)) == HELP.keys()
    assert set(re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", text, re.M)) == HELP.keys()
    assert set(re.findall(r"^(\w+)\{", text, re.M)) == HELP.keys()


def test_a_look_that_fails_is_an_answer_too() -> None:
    def away() -> list[object]:
        raise Unavailable("the home is away")

    with serve(away, 0) as port:  # type: ignore[arg-type]
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
        with pytest.raises(BadSetting, match=f"cannot serve metrics on port {port}"), serve(away, port):  # type: ignore[arg-type]
            pass
    with pytest.raises(BadSetting, match="cannot serve metrics on port 99999"), serve(away, 99999):  # type: ignore[arg-type]
        pass


def test_a_pipeline_that_was_killed_is_down(tmp_path: Path) -> None:
    made = status()
    made.pipeline = "shop"
    with tailrace.open(tmp_path) as home:
        ledger.report(home, "shop", made.shown())
        shown = ledger.reported(home, "shop")
    found = {s.metric: s.value for s in of_run(shown) if s.labels.get("writer", "lake") == "lake"}
    assert (found["tailrace_source_up"], found["tailrace_writer_up"]) == (0, 0)
