"""Records over HTTP: appended one by one, many at once, numbered; read as pages and as streams."""

from __future__ import annotations

import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pyarrow as pa
import pytest

from tailrace.home import Home
from tests.console.serving import Client
from tests.log.partitioning import kafka_partition, keys_in_place

NDJSON, ARROW, EVENTS = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/event-stream"


@pytest.fixture(autouse=True)
def _topic(home: Home) -> None:
    home.create_topic("orders", 2)


def as_arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return sink.getvalue()


def test_a_record_is_durable_and_reads_back(client: Client, home: Home) -> None:
    record = {"key": "k", "value": "paid", "timestamp": 5, "headers": {"trace": "x", "raw": {"base64": "/w=="}}}
    done = client.post("topics/orders/records", {"records": [record]})
    assert done.status == 201
    (span,) = done.json["spans"]
    (stored,) = home.topic("orders").records()
    assert (stored.partition, stored.offset) == (span["partition"], span["offset"])
    assert (stored.key, stored.value, stored.timestamp) == (b"k", b"paid", 5)
    assert dict(stored.headers) == {"trace": b"x", "raw": b"\xff"}
    (read,) = client.get("topics/orders/records").json["records"]
    headers = [{"name": "trace", "value": "x"}, {"name": "raw", "value": {"base64": "/w=="}}]
    where = {"partition": span["partition"], "offset": span["offset"]}
    assert read == {**where, "timestamp": 5, "key": "k", "value": "paid", "headers": headers}


def test_a_topic_that_places_keys_as_kafka_does(client: Client, home: Home) -> None:
    made = client.post("topics", {"name": "kafka", "partitions": 5, "settings": {"partitioner": "murmur2"}})
    assert (made.status, made.json["settings"]["partitioner"]) == (201, "murmur2")
    for n in range(20):
        (span,) = client.post("topics/kafka/records", {"records": [{"key": f"k{n}", "value": "v"}]}).json["spans"]
        assert span["partition"] == kafka_partition(b"k%d" % n, 5)
    table = pa.table({"key": [b"k%d" % n for n in range(200)], "value": [b"v"] * 200})
    assert client.post("topics/kafka/records", as_arrow(table), Content_Type=ARROW).status == 201
    assert keys_in_place(home.topic("kafka")) == 220
    refused = client.ask("PATCH", "topics/kafka", {"settings": {"partitioner": "sha256"}})
    assert (refused.status, "stays as it was made" in refused.json["detail"]) == (400, True)
    wrong = client.post("topics", {"name": "other", "settings": {"partitioner": "crc32"}})
    assert (wrong.status, "'crc32' - at `$.settings.partitioner`" in wrong.json["detail"]) == (400, True)


def test_a_head_request_has_no_body(client: Client) -> None:
    answer = client.ask("HEAD", "topics/orders")
    assert (answer.status, answer.body) == (200, b"")


def test_json_is_stored_as_it_was_written(client: Client, home: Home) -> None:
    body = b'{"records": [{"json": {"n": 12345678901234567890,  "f": 1.0}}]}'
    assert client.post("topics/orders/records", body, Content_Type="application/json").status == 201
    (stored,) = home.topic("orders").records()
    assert stored.value == b'{"n": 12345678901234567890,  "f": 1.0}'


def test_records_of_one_request_are_stored_together(client: Client, home: Home) -> None:
    many = [{"key": str(n), "value": str(n)} for n in range(50)]
    done = client.post("topics/orders/records", {"records": many}).json
    assert done["records"] == 50
    assert {r.value for r in home.topic("orders").records()} == {str(n).encode() for n in range(50)}
    bad = [*many, {"value": "x", "timestamp": -1}]
    assert client.post("topics/orders/records", {"records": bad}).status == 400
    assert len(list(home.topic("orders").records())) == 50


def test_many_requests_at_once_each_learn_their_own_offset(client: Client, home: Home) -> None:
    def one(n: int) -> tuple[str, int, int]:
        (span,) = client.post("topics/orders/records", {"records": [{"value": str(n)}]}).json["spans"]
        return str(n), span["partition"], span["offset"]

    with ThreadPoolExecutor(8) as threads:
        told = set(threads.map(one, range(60)))
    assert {(r.value.decode(), r.partition, r.offset) for r in home.topic("orders").records() if r.value} == told


def test_ndjson_and_arrow_go_in_and_come_out(client: Client, home: Home) -> None:
    lines = b"".join(json.dumps({"key": "a", "value": str(n)}).encode() + b"\n" for n in range(10))
    assert client.post("topics/orders/records", lines, Content_Type=NDJSON).json["records"] == 10
    table = pa.table({"key": pa.array([b"b"] * 5), "value": pa.array([b"%d" % n for n in range(5)])})
    assert client.post("topics/orders/records", as_arrow(table), Content_Type=ARROW).json["records"] == 5
    answer = client.get("topics/orders/records", Accept=ARROW)
    read = pa.ipc.open_stream(answer.body).read_all()
    assert read.num_rows == 15
    assert read.schema.names == ["partition", "offset", "timestamp", "attributes", "key", "value"]
    after = answer.headers["Tailrace-Next"]
    assert client.get(f"topics/orders/records?from={after}").json["records"] == []
    out = client.get("topics/orders/records", Accept=NDJSON)
    assert [json.loads(line)["value"] for line in out.body.splitlines()] == [
        r.value.decode() for r in home.topic("orders").records() if r.value is not None
    ]


def test_arrow_has_headers_where_some_records_have_them(client: Client) -> None:
    client.post("topics/orders/records?partition=0", {"records": [{"value": "a"}]})
    client.post("topics/orders/records?partition=0", {"records": [{"value": "b", "headers": {"h": "x"}}]})
    read = pa.ipc.open_stream(client.get("topics/orders/records", Accept=ARROW).body).read_all()
    assert read.column("headers").to_pylist() == [None, [{"name": "h", "value": b"x"}]]
    none = pa.ipc.open_stream(client.get("topics/orders/records?from=latest", Accept=ARROW).body).read_all()
    assert (none.num_rows, none.schema.names) == (0, read.schema.names[:6])


def test_a_numbered_batch_is_stored_once(client: Client, home: Home) -> None:
    def send(batch: int, value: str) -> dict[str, object]:
        path = f"topics/orders/records?producer=till&batch={batch}&partition=0"
        answer = client.post(path, {"records": [{"value": value}]})
        return {"status": answer.status, **answer.json}

    first, again = send(1, "a"), send(1, "a")
    assert first["spans"] == again["spans"] == [{"partition": 0, "offset": 0, "records": 1}]
    assert send(2, "b")["status"] == 201
    assert send(1, "a")["spans"] is None
    assert send(4, "d")["status"] == 400
    home.topic("orders").named_producer("till")  # another life of the name: the number decides all the same
    assert send(3, "c")["status"] == 201
    assert [r.value for r in home.topic("orders").records()] == [b"a", b"b", b"c"]
    assert client.get("topics/orders/producers/till").json == {"producer": "till", "last": 3}


def test_an_append_may_expect_offsets(client: Client) -> None:
    body = {"records": [{"value": "a"}], "expected": {"1": 0}}
    assert client.post("topics/orders/records?partition=1", body).status == 201
    stale = client.post("topics/orders/records?partition=1", body)
    assert (stale.status, stale.json["actual"]) == (409, {"1": 1})


def test_pages_go_on_by_their_cursor(client: Client, home: Home) -> None:
    home.topic("orders").append([(str(n).encode(), str(n).encode()) for n in range(25)])
    found, cursor = [], "earliest"
    for _ in range(4):
        page = client.get(f"topics/orders/records?limit=10&from={cursor}").json
        found += [(r["partition"], r["offset"]) for r in page["records"]]
        cursor = page["next"]
    assert len(found) == len(set(found)) == 25
    one = client.get("topics/orders/records?partition=1&from=3&limit=2").json["records"]
    assert [(r["partition"], r["offset"]) for r in one] == [(1, 3), (1, 4)]


def test_reading_by_time(client: Client) -> None:
    records = [{"value": str(n), "timestamp": n * 1000} for n in range(10)]
    client.post("topics/orders/records?partition=0", {"records": records})
    read = client.get("topics/orders/records?partition=0&from=1970-01-01T00:00:07Z").json["records"]
    assert [r["value"] for r in read] == ["7", "8", "9"]


def test_a_long_poll_answers_when_there_is_a_record(client: Client, home: Home) -> None:
    first = client.get("topics/orders/records?from=latest&wait=0.05")
    assert (first.status, first.json["records"]) == (200, [])
    threading.Timer(0.3, lambda: home.topic("orders").append([(None, b"new")])).start()
    began = time.monotonic()
    page = client.get("topics/orders/records?from=latest&wait=60").json
    assert [r["value"] for r in page["records"]] == ["new"]
    assert time.monotonic() - began < 30


def events_of(lines: list[str]) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in lines if line)


def next_event(response: object) -> dict[str, str]:
    """The next event of a stream that is no comment."""
    lines: list[str] = []
    while True:
        line = response.readline().decode().rstrip("\n")  # type: ignore[attr-defined]
        if not line and lines:
            return events_of(lines)
        if line and not line.startswith(":"):
            lines.append(line)


def test_server_sent_events_follow_and_go_on_by_the_last_id(client: Client, home: Home) -> None:
    home.topic("orders").append([(b"k", b"0")])
    with client.stream("topics/orders/records", Accept=EVENTS) as stream:
        assert stream.headers["Content-Type"].startswith(EVENTS)
        event = next_event(stream)
        assert json.loads(event["data"])["value"] == "0"
        home.topic("orders").append([(b"k", b"1")])
        event = next_event(stream)
        assert json.loads(event["data"])["value"] == "1"
    home.topic("orders").append([(b"k", b"2")])
    with client.stream("topics/orders/records", Accept=EVENTS, Last_Event_ID=event["id"]) as stream:
        assert json.loads(next_event(stream)["data"])["value"] == "2"


def test_followers_that_have_caught_up_share_what_is_fetched(
    client: Client, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.console import reading, tails

    read, made = [], []
    read_page, batch = reading.read_page, tails.Batch
    monkeypatch.setattr(reading, "read_page", lambda *given: read.append(given) or read_page(*given))
    monkeypatch.setattr(tails, "Batch", lambda items: made.append(items) or batch(items))
    with ExitStack() as stack:
        streams = [
            stack.enter_context(client.stream("topics/orders/records?from=latest", Accept=EVENTS)) for _ in "abc"
        ]
        one = stack.enter_context(client.stream("topics/orders/records?from=latest&partition=0", Accept=EVENTS))
        for stream in (*streams, one):
            assert stream.readline() == b": open\n"
        client.post("topics/orders/records?partition=1", {"records": [{"value": "warm"}]})
        assert {json.loads(next_event(stream)["data"])["value"] for stream in streams} == {"warm"}
        read.clear()
        made.clear()
        for n in range(5):
            client.post("topics/orders/records?partition=1", {"records": [{"value": str(n)}]})
            events = [next_event(stream) for stream in streams]
            assert [json.loads(event["data"])["value"] for event in events] == [str(n)] * 3
            assert len({event["id"] for event in events}) == 1
        assert len(made) == 5
        assert read == []  # neither by those that share, nor by the one whose partition has nothing new
        client.post("topics/orders/records?partition=0", {"records": [{"value": "mine"}]})
        assert json.loads(next_event(one)["data"])["value"] == "mine"


def test_a_long_poll_of_one_partition_does_not_ask_again_and_again(
    client: Client, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.console import reading

    read: list[object] = []
    read_page = reading.read_page
    monkeypatch.setattr(reading, "read_page", lambda *given: read.append(given) or read_page(*given))
    client.post("topics/orders/records?partition=1", {"records": [{"value": "other"}]})
    assert client.get("topics/orders/records?partition=0&wait=0.5").json["records"] == []
    assert len(read) <= 2


def test_ndjson_may_follow_up_to_a_limit(client: Client, home: Home) -> None:
    threading.Timer(0.3, lambda: home.topic("orders").append([(None, b"b"), (None, b"c")])).start()
    home.topic("orders").append([(None, b"a")])
    out = client.get("topics/orders/records?follow=true&limit=3", Accept=NDJSON)
    assert sorted(json.loads(line)["value"] for line in out.body.split()) == ["a", "b", "c"]
