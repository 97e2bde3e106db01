"""The home, its topics, tables and pipelines over HTTP: what they are, what is done to them, and who did it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.console.limits import Limits
from tailrace.home import Home
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.deliver.dead_letters import bury
from tailrace.pipeline.operate import ledger
from tailrace.pipeline.runtime.status import SinkStatus, Status
from tailrace.pipeline.runtime.trouble import Trouble
from tests.cli.test_stream import User
from tests.console.serving import VIEWER, Client, running
from tests.console.test_records import next_event
from tests.pipeline.shop import filled

FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=1)
    .source("tests.pipeline.toys:source", tables=("A",), rows=2, password="swordfish")
    .save("tests.pipeline.toys:sink", name="c0", path="{folder}/c0")
)
"""


@pytest.fixture
def shop(tmp_path: Path) -> None:
    """A pipeline that has run, of whose messages one is a dead letter."""
    (tmp_path / "shop.py").write_text(FILE.format(folder=tmp_path))
    filled(tmp_path, "AABAAB", c0=3)
    status = Status("shop", "stopped")
    status.sinks["c0"] = SinkStatus("stopped", lag=2, error="<script>alert(1)</script>")
    with tailrace.open(tmp_path / "home") as home:
        ledger.remember(home, load(tmp_path / "shop.py"))
        ledger.report(home, "shop", status.shown())
        bury(home, "shop", "c0", Trouble("ValueError: too long", "data", 0, 1, "A", "1"))


def test_topics_are_made_changed_and_deleted_and_it_is_known_by_whom(client: Client, home: Home) -> None:
    made = client.post("topics", {"name": "orders", "partitions": 2, "settings": {"compression": "zstd"}, "why": "new"})
    assert (made.status, made.json["settings"]["compression"]) == (201, "zstd")
    assert [p["end"] for p in made.json["partitions"]] == [0, 0]
    changed = client.ask("PATCH", "topics/orders", {"settings": {"retention_ms": 1000}, "partitions": 4}).json
    assert (len(changed["partitions"]), changed["settings"]["retention_ms"], len(changed["history"])) == (4, 1000, 2)
    near = client.ask("PATCH", "topics/orders", {"settings": {"retention": 1}})
    assert (near.status, "did you mean 'retention_ms'?" in near.json["detail"]) == (400, True)
    assert client.ask("PATCH", "topics/orders", {}).status == 400
    assert client.post("topics", {"name": "orders"}).status == 409
    assert client.post("topics", {"name": "more", "partitions": 1000}).status == 400
    assert len(client.get("home/actions").json["actions"]) == 2  # what is refused has not been done
    assert client.ask("DELETE", "topics/orders", {"why": ""}).status == 400
    assert client.ask("DELETE", "topics/orders", {"why": "test"}).status == 204
    assert client.get("topics/orders").status == 404
    actions = client.get("home/actions").json["actions"]
    assert [(a["what"], a["why"], a["who"]) for a in actions if a["what"] != "change topic"] == [
        ("create topic", "new", "ada@127.0.0.1 over HTTP"), ("delete topic", "test", "ada@127.0.0.1 over HTTP"),
    ]  # fmt: skip
    assert actions[1]["about"] == {"topic": "orders", "settings": {"retention_ms": 1000}, "partitions": 4}


def test_a_list_of_topics_goes_on(client: Client, home: Home) -> None:
    for n in range(5):
        home.create_topic(f"t{n}").append([(None, b"x")] * n)
    first = client.get("topics?limit=3").json
    assert [(t["name"], t["appended"], t["kept"]) for t in first["topics"]] == [
        ("t0", 0, 0),
        ("t1", 1, 1),
        ("t2", 2, 2),
    ]
    assert [t["name"] for t in client.get(f"topics?after={first['next']}").json["topics"]] == ["t3", "t4"]
    assert client.get("topics?prefix=t4").json["topics"][0]["name"] == "t4"


def test_the_home_and_who_asks(client: Client, home: Home) -> None:
    about = Client(client.port, VIEWER).get("home").json
    assert (about["id"], about["name"], about["role"], about["read_only"]) == (home.id, "vic", "viewer", False)


def test_jobs_are_started_and_watched(client: Client, home: Home) -> None:
    home.create_topic("orders").append([(b"k", b"v")] * 10)
    pause = threading.Event()
    for what in ("scrub", "upkeep"):
        job = client.post("home/jobs", {"what": what, "why": "weekly"})
        assert (job.status, job.json["what"]) == (202, what)
        while (now := client.get(f"home/jobs/{job.json['number']}").json)["state"] == "running":
            pause.wait(0.02)
        assert now["state"] == "done", now
    assert client.get("home/jobs/1").json["result"]["clean"] is True
    assert [job["number"] for job in client.get("home/jobs").json["jobs"]] == [2, 1]
    assert client.get("home/jobs/99").status == 404
    assert client.post("home/jobs", {"what": "cost"}).status == 400
    assert client.post("home/jobs", {"what": "scrub", "topics": ["none"]}).status == 404
    assert Client(client.port, VIEWER).post("home/jobs", {"what": "scrub"}).status == 403


def test_metrics_and_health(client: Client, home: Home) -> None:
    home.create_topic("orders").append([(None, b"x")])
    text = client.get("/metrics")
    assert text.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'tailrace_topic_appended_total{topic="orders"} 1\n' in text.body
    assert b'tailrace_commits_total{kind="records"} 0\n' in text.body
    home.queue("mails", shards=1)
    for path, body, status in (
        ("topics/orders/records", {"records": [{"value": "a"}]}, 201),
        ("topics/orders/records", {"records": [{"value": "a"}, {"value": "b"}]}, 201),
        ("topics/orders/records", {"records": []}, 400),
        ("queues/mails/messages", {"messages": [{"value": "a"}]}, 201),
        ("events/streams/Cart-1", {"events": [{"type": "A"}], "expected": 0}, 201),
        ("events/streams/Cart-1", {"events": [{"type": "A"}], "expected": 0}, 409),
    ):
        assert client.post(path, body).status == status
    found = dict(line.split(" ") for line in client.get("/metrics").body.decode().splitlines() if "commit" in line[:20])
    for kind, count in (("records", 2), ("messages", 1), ("events", 1)):
        assert found[f'tailrace_commits_total{{kind="{kind}"}}'] == str(count)
        seconds = float(found[f'tailrace_commit_seconds_total{{kind="{kind}"}}'])
        assert 0 < float(found[f'tailrace_commit_p99_seconds{{kind="{kind}"}}']) <= seconds
    plain = Client(client.port, None)
    assert (plain.get("/healthz").body, plain.get("/readyz").body) == (b"alive\n", b"ready\n")


def test_callers_without_a_token_cost_the_storage_little(
    home: Home, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Home] = []
    topics = Home.topics

    def counted(home: Home) -> list[str]:
        asked.append(home)
        return topics(home)

    monkeypatch.setattr(Home, "topics", counted)
    with running(place, limits=Limits(poll_seconds=3600)) as client:
        plain = Client(client.port, None)
        assert [plain.get("/readyz").status for _ in range(5)] == [200] * 5
        assert len(asked) == 1


def test_a_damaged_record_where_a_group_stands_hides_nothing_else(client: Client, home: Home, place: Path) -> None:
    topic, mails = home.topic("orders", partitions=1), home.queue("mails", shards=1)
    with topic.consumer("billing", max_seconds=0.1) as consumer:
        list(consumer)
    topic.append([(None, b"a" * 300_000)])
    topic.append([(None, b"b")])
    mails.push(b"a" * 300_000)
    for path in (place / "objects").rglob("*"):
        if path.is_file() and b"a" * 100 in (data := path.read_bytes()):
            path.chmod(0o600)
            path.write_bytes(data.replace(b"a" * 100, b"x" * 100, 1))
    assert client.get("topics/orders/records").status == 206
    (group,) = client.get("groups?topic=orders").json["groups"]
    assert group["lag"]["records"] == 2
    assert group["lag"]["seconds"] > 0  # of the record behind the damage
    assert client.get("queues").json["queues"][0]["counts"]["backlog"] == 1
    assert b'tailrace_group_lag{group="billing",topic="orders"} 2\n' in client.get("/metrics").body
    for page in ("/", "/groups", "/groups/billing/orders", "/queues/mails"):
        assert client.get(page).status == 200


def test_tables_and_their_changes(client: Client, home: Home) -> None:
    engine = home.engine()
    engine.bind(User)
    engine.save(User(id="ann", email="ann@example.com", photo=b"\xff"))
    (table,) = client.get("streams").json["tables"]
    assert (table["table"], table["hash_key"], table["stream"]) == (
        "User",
        {"name": "id", "type": "text"},
        ["new", "old"],
    )
    assert len(client.get("streams/User").json["shards"]) >= 1
    page = client.get("streams/User/changes").json
    assert page["changes"][0]["new"]["photo"] == {"base64": "/w=="}
    with client.stream(f"streams/User/changes?from={quoted(page['token'])}", Accept="text/event-stream") as stream:
        engine.save(User(id="bob", email="bob@example.com"))
        event = next_event(stream)
        assert json.loads(event["data"])["key"] == {"id": "bob"}
    for media, limit, lines in (("application/x-ndjson", "", 2), ("application/x-ndjson", "?limit=1", 1)):
        assert client.get(f"streams/User/changes{limit}", Accept=media).body.count(b"\n") == lines
    assert client.get("streams/User/changes?limit=1", Accept="text/event-stream").body.count(b"data: ") == 1
    assert client.get("streams/User/changes?limit=0", Accept="text/event-stream").status == 400
    assert client.get(f"streams/User/changes?from={quoted(event['id'])}").json["changes"] == []
    for bad in ("{", "{}", "5", "never"):
        assert client.get(f"streams/User/changes?from={quoted(bad)}").status == 400, bad
    assert client.get("streams/Usr").status == 404


def test_groups_of_a_table(client: Client, home: Home) -> None:
    engine = home.engine()
    engine.bind(User)
    for name in ("ann", "bob", "eve"):
        engine.save(User(id=name, email=f"{name}@example.com"))
    assert client.get("streams/User/groups").json == {"groups": []}
    engine.consumer(User, "mailer", lambda record: None).run(until_caught_up=True)
    engine.save(User(id="zoe", email="zoe@example.com"))
    assert client.get("streams/User/groups").json == {"groups": ["mailer"]}
    found = client.get("streams/User/groups/mailer").json
    assert (found["group"], found["members"], found["dead_letters"]) == ("mailer", [], 0)
    (shard,) = found["shards"]
    assert (shard["handled"], shard["behind"], shard["member"], shard["error"]) == (3, 1, None, "")
    assert client.get("streams/User/groups/mailer?count=false").json["shards"][0]["behind"] == 0
    assert client.get("streams/User/groups/maler").status == 404
    assert client.get("streams/Usr/groups").status == 404


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


@pytest.mark.usefixtures("shop")
class TestPipelines:
    """Of a pipeline that has run."""

    def test_what_is_told_of_it(self, client: Client) -> None:
        (status,) = client.get("pipelines").json["pipelines"]
        assert (status["pipeline"], status["sinks"]["c0"]["lag"]) == ("shop", 2)
        assert client.get("pipelines/shop").json == status
        (writer,) = client.get("pipelines/shop/offsets").json["writers"]
        assert writer["partitions"] == [{"partition": 0, "low": 3, "ahead": {}, "floor": 0, "end": 6, "pending": 2}]
        log = client.get("pipelines/shop/log?limit=4").json
        assert [(m["namespace"], m["offset"], m["data"]["v"]) for m in log["messages"]] == [
            ("A", 0, "A"), ("A", 1, "A"), ("B", 2, "B"), ("A", 3, "A"),
        ]  # fmt: skip
        assert [m["offset"] for m in client.get(f"pipelines/shop/log?from={log['next']}").json["messages"]] == [4, 5]
        (letter,) = client.get("pipelines/shop/dead").json["dead"]
        whole = client.get(f"pipelines/shop/dead/{letter['number']}").json
        assert (whole["letter"]["error"], whole["message"]["data"]["v"]) == ("ValueError: too long", "A")

    def test_offsets_are_moved_with_a_reason(self, client: Client) -> None:
        path = "pipelines/shop/writers/c0/mark"
        order: dict[str, Any] = {"partition": 0, "offset": 4}
        shown = client.post(path, {**order, "preview": True}).json
        assert shown == {"partition": 0, "before": 3, "after": 4, "skipped": 1, "again": 0, "others": [], "done": False}
        assert client.post(path, order).status == 400
        assert client.post(path, {**order, "why": "order 4 has no customer"}).json["done"]
        assert client.post(path, {"partition": 0, "offset": 99, "why": "x"}).status == 400
        assert client.post("pipelines/shop/writers/c1/mark", {**order, "why": "x"}).status == 404
        forgotten = client.post("pipelines/shop/writers/c0/forget", {"why": "a new warehouse"}).json
        assert forgotten["writers"][0]["partitions"][0]["pending"] == 6
        did = [(a["what"], a["why"], a["who"]) for a in client.get("pipelines/shop/actions").json["actions"]]
        assert did == [
            ("mark", "order 4 has no customer", "ada@127.0.0.1 over HTTP"),
            ("delete offsets", "a new warehouse", "ada@127.0.0.1 over HTTP"),
        ]

    def test_no_secret_is_told(self, client: Client) -> None:
        paths = ["", "/offsets", "/log", "/dead", "/dead/0", "/actions"]
        for path in (*(f"pipelines/shop{end}" for end in paths), "pipelines", "home", "/metrics", "topics"):
            assert b"swordfish" not in client.get(path).body

    def test_what_is_not_there(self, client: Client) -> None:
        for path in ("pipelines/shp", "pipelines/shp/log", "pipelines/shp/dead", "pipelines/shop/dead/7"):
            assert client.get(path).status == 404
        assert client.get("pipelines/shop/log?from=9:0").status == 400
        assert client.get("pipelines/shop/dead/x").status == 400
