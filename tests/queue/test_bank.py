"""The bank: workers in processes of their own move money through queue messages, and are killed with -9 at random.

The sum never changes, and every transfer happens once: events, the receipt and the acknowledgement are one transaction.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tailrace
from tailrace.events.event import Event
from tailrace.queue import Message, Queue
from tests.servers.aws import new_bucket, new_table
from tests.servers.process import Server

WORKER = """
    import json, sys, time, tailrace
    from tailrace.errors import Fenced, VersionConflict
    from tailrace.events import Event

    with tailrace.open(sys.argv[1]) as home:
        events = home.events()

        def balance(account):
            stream = events.stream(f"Account-{account}")
            amounts = [int(event.data) for event in stream.read()]
            return len(amounts), sum(amounts)

        def transfer(envelope):
            source, target, amount = envelope.message["from"], envelope.message["to"], envelope.message["amount"]
            while True:
                seen, money = balance(source)
                try:
                    with envelope.transaction() as t:
                        if money >= amount:
                            t.append(f"Account-{source}", [Event("Sent", str(-amount).encode())], expected=seen)
                            t.append(f"Account-{target}", [Event("Got", str(amount).encode())])
                        t.push("receipts", {"transfer": envelope.message["id"], "done": money >= amount})
                    return
                except VersionConflict:
                    continue
                except Fenced:
                    return

        with home.queue("transfers").tail(transfer, threads=2, ttl=1.0, batch_size=5) as worker:
            while True:
                time.sleep(1)
"""
ACCOUNTS, MONEY, PROCESSES = 4, 100, 4


def start(url: str, errors: Path) -> subprocess.Popen[bytes]:
    with errors.open("ab") as out:
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(WORKER), url], stderr=out)


def bank(url: str, errors: Path, transfers: int, rounds: int, seed: int) -> int:
    """Transfers are pushed while workers are killed; gives how many were killed."""
    rng = random.Random(seed)
    home = tailrace.open(url)
    queue = home.queue("transfers", shards=4, attempts=50, backoff=0.01)
    home.queue("receipts", shards=1)
    for n in range(ACCOUNTS):
        home.events().stream(f"Account-{n}").append([Event("Opened", b"%d" % MONEY)])
    workers = [start(url, errors) for _ in range(PROCESSES)]
    killed = 0
    try:
        for n in range(rounds):
            some = range(n * transfers // rounds, (n + 1) * transfers // rounds)
            queue.push_many([transfer(rng, number) for number in some])
            time.sleep(rng.uniform(0.3, 1.2))
            for slot in rng.sample(range(PROCESSES), rng.randint(1, PROCESSES - 1)):
                workers[slot].kill()
                workers[slot].wait()
                killed += 1
                workers[slot] = start(url, errors)
            now = queue.stats()
            assert now.routed == now.acked + now.dead + now.purged + now.backlog
        assert drained(queue), errors.read_text()[-2000:]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    accounts = [[int(e.data) for e in home.events().stream(f"Account-{n}").read()] for n in range(ACCOUNTS)]
    assert sum(map(sum, accounts)) == ACCOUNTS * MONEY, "money was made or lost"
    assert all(sum(amounts) >= 0 for amounts in accounts)
    receipts = [json.loads(record.value or b"") for record in home.queue("receipts").topic().records()]
    assert sorted(one["transfer"] for one in receipts) == list(range(transfers)), "a transfer happened twice, or never"
    assert sum(map(len, accounts)) == ACCOUNTS + 2 * sum(one["done"] for one in receipts)
    assert (queue.stats().acked, queue.stats().dead) == (transfers, 0)
    home.close()
    return killed


def drained(queue: Queue) -> bool:
    """Whether everything was done in the end; False if nothing was for a minute and a half."""
    acked = -1
    while acked < (acked := queue.stats().acked):
        if queue.drain(90):
            return True
    return False


def transfer(rng: random.Random, number: int) -> Message:
    source, target = rng.sample(range(ACCOUNTS), 2)
    return Message({"id": number, "from": source, "to": target, "amount": rng.randint(1, 60)}, f"account-{source}")


@pytest.fixture
def cloud(seaweedfs: Server, dynoxide: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """New homes on S3 and DynamoDB as servers have them, which processes of their own can open."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs.secret)
    query = f"region=us-east-1&endpoint={seaweedfs.url}&table_endpoint={dynoxide.url}"
    return lambda: f"s3://{new_bucket(seaweedfs)}/home?table={new_table(dynoxide)}&{query}"


def test_the_bank_keeps_its_money_while_workers_are_killed(tmp_path: Path) -> None:
    assert bank(str(tmp_path / "home"), tmp_path / "errors", transfers=150, rounds=5, seed=1) >= 5


@pytest.mark.server
def test_the_bank_on_s3_and_dynamodb(cloud: Callable[[], str], tmp_path: Path) -> None:
    assert bank(cloud(), tmp_path / "errors", transfers=40, rounds=3, seed=1) >= 3


@pytest.mark.soak
def test_soak_the_bank_for_ten_minutes(tmp_path: Path) -> None:
    soak(lambda seed: str(tmp_path / f"home{seed}"), tmp_path / "errors", transfers=1000)


@pytest.mark.soak
@pytest.mark.server
def test_soak_the_bank_on_s3_and_dynamodb(cloud: Callable[[], str], tmp_path: Path) -> None:
    soak(lambda seed: cloud(), tmp_path / "errors", transfers=200)


def soak(new_home: Callable[[int], str], errors: Path, transfers: int) -> None:
    """One bank after the other, each with its own seed, for TAILRACE_SECONDS and at least 50 rounds of kills."""
    began, banks = time.monotonic(), 0
    while banks < 5 or time.monotonic() - began < float(os.environ.get("TAILRACE_SECONDS", "600")):
        bank(new_home(banks), errors, transfers, rounds=10, seed=2 + banks)
        banks += 1
