"""How many records a second go in and come out over HTTP, many at once, beside the library without HTTP?"""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.http import rabbit
from benchmarks.http.client import Connection, ask_all, request
from benchmarks.http.servers import Served, served_home
from benchmarks.load import PARTITIONS, Load

APPEND, READ = Figure("appended, records/s"), Figure("read, records/s")
ARROW, NDJSON = "tailrace serve, Arrow", "tailrace serve, NDJSON"
LIBRARY, RABBITMQ = "the library, Arrow", "RabbitMQ, HTTP API"
ARROW_TYPE, NDJSON_TYPE = "application/vnd.apache.arrow.stream", "application/x-ndjson"
LINES = 5_000
"""Records in one body of NDJSON."""
PATH = "/api/v1/topics/bench/records"


def question(quick: bool) -> Question:
    """The same records in and out again, by each way."""
    load = Load(20_000 if quick else 500_000)
    few = Load(200 if quick else 5_000)

    def of_the_library(figure: Figure, results: Results) -> float:
        return results.of(ARROW, figure.name) / results.of(LIBRARY, figure.name)

    return Question(
        name="http_batches",
        title="records in and out over HTTP, many at once",
        note=f"{load.count:,} records of 216 bytes into 8 partitions, by one client; a round appends them to a new "
        f"topic and reads that. RabbitMQ's API publishes one message a request: {few.count:,} of them.",
        sides=[
            Side(
                ARROW, "synced; bodies of 4 MiB; pages of 32 MiB",
                partial(ours, load=load, ways=(post_arrow, get_arrow)),
            ),
            Side(
                NDJSON, f"synced; bodies of {LINES:,} lines; one stream",
                partial(ours, load=load, ways=(post_lines, get_lines)),
            ),
            Side(LIBRARY, "synced; send_batch() of 4 MiB; read() as Arrow batches", partial(library, load=load)),
            Side(RABBITMQ, "not synced; publish by one, get by 1,000", partial(rabbitmq, load=few)),
        ],
        figures=[APPEND, READ],
        base=LIBRARY,
        targets=[
            Target(f"Arrow, {figure.name}: ≥ 0.5 of the library", partial(of_the_library, figure), 0.5)
            for figure in (APPEND, READ)
        ],
        rounds=1 if quick else 5,
    )  # fmt: skip


# --- tailrace ---------------------------------------------------------------------------------------------------------
def post_arrow(server: Served, load: Load) -> list[bytes]:
    """Bodies that are Arrow streams."""
    return [request("POST", PATH, as_arrow(batch), server.token, Content_Type=ARROW_TYPE) for batch in load.batches]


def as_arrow(batch: pa.RecordBatch) -> bytes:
    """An Arrow stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return sink.getvalue().to_pybytes()


def get_arrow(server: Served) -> int:
    """Page after page, as Arrow, until one is empty."""
    found, cursor = 0, "earliest"
    with Connection(server.port) as connection:
        while True:
            path = f"{PATH}?from={cursor}&max_bytes={32 << 20}"
            headers, body = connection.ask(request("GET", path, b"", server.token, Accept=ARROW_TYPE))
            rows = pa.ipc.open_stream(body).read_all().num_rows
            if not rows:
                return found
            found, cursor = found + rows, headers["tailrace-next"]


def post_lines(server: Served, load: Load) -> list[bytes]:
    """Bodies that are lines of JSON."""
    lines = [
        json.dumps({"key": key.decode(), "value": {"base64": b64encode(value).decode()}}).encode()
        for key, value in zip(load.keys, load.values, strict=True)
    ]
    bodies = [b"\n".join(lines[start : start + LINES]) for start in range(0, len(lines), LINES)]
    return [request("POST", PATH, body, server.token, Content_Type=NDJSON_TYPE) for body in bodies]


def get_lines(server: Served) -> int:
    """One stream of lines: it ends at the records that the topic had when it began."""
    with Connection(server.port) as connection:
        _, body = connection.ask(request("GET", PATH, b"", server.token, Accept=NDJSON_TYPE))
    return sum(line.startswith(b'{"partition"') for line in body.splitlines())


@contextlib.contextmanager
def ours(
    folder: Path, load: Load, ways: tuple[Callable[[Served, Load], list[bytes]], Callable[[Served], int]]
) -> Iterator[Run]:
    """A home that is served; each round has a topic of its own."""
    post, get = ways
    with tailrace.open(folder / "home") as home, served_home(folder / "home") as server:
        requests = post(server, load)

        def run() -> Figures:
            with contextlib.suppress(tailrace.errors.UnknownTopic):
                home.delete_topic("bench")
            home.create_topic("bench", PARTITIONS)
            appending, _ = timed(lambda: ask_all(server.port, requests, 1))
            reading, found = timed(lambda: get(server))
            expect("records read", found, load.count)
            return {APPEND.name: load.count / appending, READ.name: load.count / reading}

        yield run


@contextlib.contextmanager
def library(folder: Path, load: Load) -> Iterator[Run]:
    """The same batches by a producer of this process."""
    with tailrace.open(folder / "home") as home:

        def append() -> None:
            with home.topic("bench").producer() as out:
                for batch in load.batches:
                    out.send_batch(batch)

        def run() -> Figures:
            with contextlib.suppress(tailrace.errors.UnknownTopic):
                home.delete_topic("bench")
            topic = home.create_topic("bench", PARTITIONS)
            appending, _ = timed(append)
            reading, found = timed(lambda: sum(batch.num_rows for batch in topic.read()))
            expect("records read", found, load.count)
            return {APPEND.name: load.count / appending, READ.name: load.count / reading}

        yield run


# --- the peer ---------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def rabbitmq(folder: Path, load: Load) -> Iterator[Run]:
    """Publishing and getting by RabbitMQ's management API."""
    with rabbit.served(folder) as server:
        requests = [rabbit.publish(value) for value in load.values]

        def run() -> Figures:
            publishing, _ = timed(lambda: ask_all(server.port, requests, 1))
            getting, _ = timed(
                lambda: [rabbit.get(server, min(1000, load.count)) for _ in range(-(-load.count // 1000))]
            )
            return {APPEND.name: load.count / publishing, READ.name: load.count / getting}

        yield run
