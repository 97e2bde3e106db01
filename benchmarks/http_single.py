"""How many single records can be appended over HTTP, each durable before the next is sent?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.http import rabbit
from benchmarks.http.client import ask_all, request
from benchmarks.http.servers import served_home, served_nothing
from benchmarks.load import Load

ONE, SIXTEEN = Figure("1 client, appends/s"), Figure("16 clients, appends/s")
OURS, BARE, LIBRARY, RABBITMQ = "tailrace serve", "a handler that does nothing", "the library", "RabbitMQ, HTTP API"
CLIENTS = {ONE.name: 1, SIXTEEN.name: 16}


def question(quick: bool) -> Question:
    """Single records by one client and by sixteen."""
    load = Load(100 if quick else 2_000)

    def of_the_lower(figure: Figure, results: Results) -> float:
        limit = min(results.of(BARE, figure.name), results.of(LIBRARY, figure.name))
        return results.of(OURS, figure.name) / limit

    return Question(
        name="http_single",
        title="single records appended over HTTP",
        note=f"{load.count:,} records of 216 bytes, and as many by sixteen clients, on connections that stay open; "
        "each answer is waited for. The library is called by threads of one process, without HTTP.",
        sides=[
            Side(OURS, "synced; POST /topics/…/records, JSON", partial(ours, load=load)),
            Side(BARE, "nothing is kept; Starlette on uvicorn", partial(bare, load=load)),
            Side(LIBRARY, "synced; send().result()", partial(library, load=load)),
            Side(RABBITMQ, "not synced: no confirm; POST …/publish to a durable queue", partial(rabbitmq, load=load)),
        ],
        figures=[ONE, SIXTEEN],
        base=OURS,
        targets=[
            Target(
                f"{figure.name}: ≥ 0.7 of the bare handler or of the library, whichever is slower",
                partial(of_the_lower, figure),
                0.7,
            )
            for figure in (ONE, SIXTEEN)
        ],
        rounds=1 if quick else 5,
    )


def bodies(load: Load) -> list[bytes]:
    """Each record as JSON: bytes go as base64."""
    import base64

    pairs = zip(load.keys, load.values, strict=True)
    return [
        json.dumps({"records": [{"key": key.decode(), "value": {"base64": base64.b64encode(value).decode()}}]}).encode()
        for key, value in pairs
    ]


def rates(port: int, requests: list[bytes]) -> Figures:
    """Appends a second, by so many clients."""
    return {
        name: len(requests) / timed(partial(ask_all, port, requests, clients))[0] for name, clients in CLIENTS.items()
    }


@contextlib.contextmanager
def ours(folder: Path, load: Load) -> Iterator[Run]:
    """A home that is served, with one topic."""
    with tailrace.open(folder / "home") as home:
        home.topic("bench", partitions=8)
    with served_home(folder / "home") as server:
        path = "/api/v1/topics/bench/records"
        requests = [request("POST", path, body, server.token, Content_Type="application/json") for body in bodies(load)]
        rounds = 0

        def run() -> Figures:
            nonlocal rounds
            rounds += 1
            figures = rates(server.port, requests)
            with tailrace.open(folder / "home") as home:
                count = sum(end - floor for floor, end in home.topic("bench").ends().values())
            expect("records of the topic", count, rounds * len(CLIENTS) * load.count)
            return figures

        yield run


@contextlib.contextmanager
def bare(folder: Path, load: Load) -> Iterator[Run]:
    """The same requests to a handler that does nothing."""
    with served_nothing() as server:
        requests = [request("POST", "/", body, "", Content_Type="application/json") for body in bodies(load)]
        yield lambda: rates(server.port, requests)


@contextlib.contextmanager
def library(folder: Path, load: Load) -> Iterator[Run]:
    """The same records by a producer of this process, without a server."""
    pairs = list(zip(load.keys, load.values, strict=True))
    with tailrace.open(folder / "home") as home, home.topic("bench", partitions=8).producer() as out:

        def append(clients: int) -> None:
            with ThreadPoolExecutor(clients) as pool:
                shares = [pairs[number::clients] for number in range(clients)]
                list(pool.map(lambda share: [out.send(key, value).result() for key, value in share], shares))

        yield lambda: {name: len(pairs) / timed(partial(append, clients))[0] for name, clients in CLIENTS.items()}


@contextlib.contextmanager
def rabbitmq(folder: Path, load: Load) -> Iterator[Run]:
    """Publishing by RabbitMQ's management API, as people who have nothing else do."""
    with rabbit.served(folder) as server:
        requests = [rabbit.publish(value) for value in load.values]
        yield lambda: rates(server.port, requests)
