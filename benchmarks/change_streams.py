"""How many changes a second come out of a stream, beside `bloop` on the same endpoint, and what does merging cost?"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Key
from tailrace.testing import SimulatedChanges

NAMES = KeySchema("name", "S", None)
ONE, EIGHT = Figure("1 shard, changes/s"), Figure("8 shards, changes/s")
SHARDS = {ONE.name: 1, EIGHT.name: 8}
NEXT, BATCHES, BLOOP = "tailrace, next", "tailrace, batches", "bloop 3"
PER_CHANGE = Figure("µs a change", 2, more=False)
BY_BLOOP = """
import sys, time, warnings
warnings.simplefilter("ignore")
import boto3
from bloop import BaseModel, Column, Engine, Integer, String
url, count = sys.argv[1], int(sys.argv[2])
given = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
class User(BaseModel):
    class Meta:
        table_name = "users"
        stream = {"include": ["new", "old"]}
    name = Column(String, hash_key=True)
    n = Column(Integer)
engine = Engine(dynamodb=boto3.client("dynamodb", **given), dynamodbstreams=boto3.client("dynamodbstreams", **given))
engine.bind(User)
stream = engine.stream(User, "trim_horizon")
began, found = time.perf_counter(), 0
while found < count:
    found += next(stream) is not None
print(time.perf_counter() - began)
"""


def question(quick: bool) -> Question:
    """The same streams, served by a process of their own, read by each side's process."""
    count = 4_000 if quick else 100_000
    sides = [
        Side(NEXT, "next(stream), typed by a model", partial(ours, count=count, how="next")),
        Side(BATCHES, "stream.batches(), typed by a model", partial(ours, count=count, how="batches")),
        Side(BLOOP, "next(stream), typed by a model", partial(theirs, count=count)),
    ]
    return Question(
        name="change_streams",
        title="a table's changes read from the beginning",
        note=f"{count:,} changes with new and old images. All read the same simulated stream service over HTTP, a "
        "process of its own that answers with up to 1,000 changes, which it has encoded before.",
        sides=sides,
        figures=[ONE, EIGHT],
        base=NEXT,
        targets=[
            Target(f"{figure.name}: {side} ≥ 5 times bloop", partial(_times, side, figure), 5)
            for side in (NEXT, BATCHES)
            for figure in (ONE, EIGHT)
        ],
        rounds=2 if quick else 5,
    )


def _times(side: str, figure: Figure, results: Results) -> float:
    return results.of(side, figure.name) / results.of(BLOOP, figure.name)


def filled(shards: int, count: int) -> SimulatedChanges:
    """A stream with so many open shards and changes."""
    changes = SimulatedChanges(shards=shards)
    for n in range(count):
        changes.clock.set_wall(changes.clock.wall() + 0.001)
        name = f"user-{n % 997}"
        changes.capture(Key(name), {"name": name, "n": n - 997}, {"name": name, "n": n})
    return changes


@contextlib.contextmanager
def services(count: int) -> Iterator[dict[str, str]]:
    """The addresses of a service for each number of shards, each a process."""
    with contextlib.ExitStack() as stack:
        urls = {}
        for figure, shards in SHARDS.items():
            command = [sys.executable, "-m", "benchmarks.change_streams", "serve", str(shards), str(count)]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)  # the service ends with its input
            urls[figure] = process.stdout.readline().decode().strip()
        yield urls


@contextlib.contextmanager
def ours(folder: Path, count: int, how: str) -> Iterator[Run]:
    """Tailrace, in a process of its own."""
    with services(count) as urls:
        command = [sys.executable, "-m", "benchmarks.change_streams", how]
        yield partial(_run, command, urls, count)


@contextlib.contextmanager
def theirs(folder: Path, count: int) -> Iterator[Run]:
    """Bloop, in the environment that the tests have it in."""
    from tests.servers.environment import environment

    with services(count) as urls:
        yield partial(_run, [str(environment("bloop") / "python"), "-c", BY_BLOOP], urls, count)


def _run(command: list[str], urls: dict[str, str], count: int) -> Figures:
    found = {}
    for figure, url in urls.items():
        done = subprocess.run([*command, url, str(count)], capture_output=True, text=True, timeout=900, check=False)
        expect(f"the end of a reader ({done.stderr[-300:]})", done.returncode, 0)
        found[figure] = count / float(done.stdout)
    return found


# --- merging ----------------------------------------------------------------------------------------------------------
def merging(quick: bool) -> Question:
    """The same number of changes in one shard to 256, read in this process."""
    count = 4_000 if quick else 50_000
    shards = [1, 8, 64, 256]
    names = [f"{number} shards" for number in shards]
    return Question(
        name="stream_merge",
        title="changes merged from many shards",
        note=f"{count:,} changes in memory, read by next(stream).",
        sides=[
            Side(name, "tailrace", partial(merged, count=count, shards=n))
            for name, n in zip(names, shards, strict=True)
        ],
        figures=[PER_CHANGE],
        base=names[0],
        targets=[
            Target(
                "256 shards: at most 1 + log2(256) times 1 shard",
                lambda results: results.of(names[-1], PER_CHANGE.name) / results.of(names[0], PER_CHANGE.name),
                9,
                at_most=True,
            ),
            Target(
                "256 shards: at most (1 + log2(256)) / (1 + log2(64)) = 1.3 times 64 shards, and a fifth for noise",
                lambda results: results.of(names[-1], PER_CHANGE.name) / results.of(names[-2], PER_CHANGE.name),
                1.54,
                at_most=True,
            ),
        ],
        rounds=2 if quick else 5,
    )


@contextlib.contextmanager
def merged(folder: Path, count: int, shards: int) -> Iterator[Run]:
    """A stream in memory."""
    from tailrace.streams.stream import Stream

    changes = filled(shards, count)

    def run() -> Figures:
        with Stream(changes, "trim_horizon", table="users", make=lambda change: change, threads=1) as stream:
            seconds, found = timed(lambda: sum(1 for _ in iter(lambda: next(stream), None)))
        expect("changes", found, count)
        return {PER_CHANGE.name: seconds / count * 1e6}

    yield run


# --- processes --------------------------------------------------------------------------------------------------------
def serve(shards: int, count: int) -> None:
    """The process that serves a stream until its input ends."""
    from tailrace.testing import StreamService

    with StreamService({"users": filled(shards, count)}, schema=NAMES) as service:
        service.prepare()
        print(service.url, flush=True)
        sys.stdin.read()


def read(how: str, url: str, count: int) -> None:
    """The process that reads a stream with tailrace; prints the seconds it took."""
    import boto3

    from tailrace.storage.aws.dynamodb import open_table
    from tailrace.streams import Engine, hash_key, model
    from tailrace.streams.table_homes import OnDynamo

    @model(table="users", stream={"new", "old"})
    class User:
        name: str = hash_key()
        n: int

    session = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1")
    engine = Engine(OnDynamo(open_table("users", home=url, session=session, endpoint=url)))
    engine.bind(User)
    import pyarrow as pa

    import tailrace.streams.arrow  # noqa: F401  (its import is no part of the time, nor what the first array loads)

    pa.array([0])

    stream: Any = engine.stream(User, "trim_horizon")

    def all_of_it() -> None:
        found = 0
        while found < count:
            found += sum(b.num_rows for b in stream.batches()) if how == "batches" else next(stream) is not None

    print(timed(all_of_it)[0])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        read(sys.argv[1], sys.argv[2], int(sys.argv[3]))
