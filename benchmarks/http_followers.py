"""How late is a record for a thousand followers of one topic, and what do they cost the server?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Run, Side, Target, expect
from benchmarks.http.client import request
from benchmarks.http.servers import Served, served_home
from benchmarks.machine import processor_seconds, resident_mb
from tailrace.log.write.producer import Producer

HALF, LATE = Figure("delay p50 ms", 1, more=False), Figure("delay p99 ms", 1, more=False)
MEMORY = Figure("server, MB", 0, more=False, ratio=False)
IDLE = Figure("idle server, % of a core", 2, more=False, ratio=False)
PATH = "/api/v1/topics/bench/records?from=latest"


def question(quick: bool) -> Question:
    """Followers by server-sent events, and records one after the other."""
    counts = [1, 20] if quick else [1, 100, 1_000]
    records, idle = (10, 1.0) if quick else (100, 10.0)
    names = [f"{count:,} followers" for count in counts]
    return Question(
        name="http_followers",
        title="followers by server-sent events",
        note=f"{records} records, 100 ms apart, appended by another process than the server's; a delay is from before "
        f"the append to its arrival at one follower. All followers are one client process. Idle is over {idle:g} s.",
        sides=[
            Side(name, "GET …/records, text/event-stream", partial(followed, count=count, records=records, idle=idle))
            for name, count in zip(names, counts, strict=True)
        ],
        figures=[HALF, LATE, MEMORY, IDLE],
        base=names[0],
        targets=[
            Target(
                f"{names[-1]}: p99 ≤ 250 ms", lambda results: results.of(names[-1], LATE.name), 250, at_most=True
            ),
            Target(
                f"{names[0]}: an idle server ≤ 1 % of a core",
                lambda results: results.of(names[0], IDLE.name), 1, at_most=True,
            ),
        ],
        rounds=1 if quick else 3,
    )  # fmt: skip


@contextlib.contextmanager
def followed(folder: Path, count: int, records: int, idle: float) -> Iterator[Run]:
    """A served home, and so many connections that stay open."""
    with (
        tailrace.open(folder / "home") as home,
        home.create_topic("bench", 8).producer() as out,
        served_home(folder / "home", "--max-streams", str(count + 8)) as server,
    ):

        def run() -> Figures:
            return asyncio.run(_round(server, out, count, records, idle))

        yield run


async def _round(server: Served, out: Producer, count: int, records: int, idle: float) -> Figures:
    delays: list[float] = []
    sent = request("GET", PATH, b"", server.token, Accept="text/event-stream")
    opened = [await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20) for _ in range(count)]
    for _, writer in opened:
        writer.write(sent)
    for reader, _ in opened:
        expect("status", (await reader.readline()).split()[1:2], [b"200"])
    tasks = [asyncio.create_task(_follow(reader, records, delays)) for reader, _ in opened]
    await asyncio.sleep(2)  # all of them wait at the end of the topic
    spent = await _idle(server.pid, idle)
    for _ in range(records):
        await asyncio.to_thread(lambda: out.send(b"", json.dumps({"at": time.monotonic()}).encode()).result())
        await asyncio.sleep(0.1)
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    for _, writer in opened:
        writer.close()
    delays.sort()
    expect("records that arrived", len(delays), count * records)
    p50, p99 = delays[len(delays) // 2] * 1e3, delays[len(delays) * 99 // 100] * 1e3
    return {HALF.name: p50, LATE.name: p99, MEMORY.name: resident_mb(server.pid), IDLE.name: spent}


async def _follow(reader: asyncio.StreamReader, records: int, delays: list[float]) -> None:
    """Note how old each record is when its line arrives."""
    found = 0
    while found < records:
        line = await reader.readline()
        if line.startswith(b"data:") and b"at" in line and (at := _at(line[5:])) is not None:
            delays.append(time.monotonic() - at)
            found += 1


def _at(data: bytes) -> float | None:
    value = json.loads(data).get("value")
    return float(json.loads(value)["at"]) if value else None


async def _idle(pid: int, seconds: float) -> float:
    before = processor_seconds(pid)
    await asyncio.sleep(seconds)
    return (processor_seconds(pid) - before) / seconds * 100
