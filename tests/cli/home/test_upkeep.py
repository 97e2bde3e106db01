"""`tailrace upkeep`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

import tailrace
from tailrace.coordination.lease import Lease
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.upkeep import scheduler
from tailrace.queue.dedup import dedup_key
from tailrace.storage.tables import Absent, Put
from tests.cli.runs import PROGRAM, Cli


@pytest.fixture
def orders(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    cli("topic", "create", "orders", "-p", 2)
    with tailrace.open(cli.home) as here:
        for n in range(60):
            here.topic("orders").append([(b"%d" % n, b"value %d" % n)])


def test_a_run_says_what_it_did(cli: Cli, orders: None) -> None:
    before = sorted(cli("topic", "read", "orders").out.splitlines())
    head, done = cli("upkeep", "run").out.splitlines()
    assert head.split() == ["TOPIC", "DONE"]
    assert done.startswith("orders  wrote ")
    assert done.endswith("fewer)")
    assert "cleaned" in cli("upkeep", "run").out
    assert cli("upkeep", "run").out == "nothing to do in 1 topic\n"
    assert sorted(cli("topic", "read", "orders").out.splitlines()) == before


def test_as_json(cli: Cli, orders: None) -> None:
    (done,) = cli("upkeep", "run", "orders", "--json").json
    assert done["topic"] == "orders"
    assert done["written_bytes"] > 0
    assert done["error"] is None


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_topic_that_cannot_be_finished_is_named_and_the_code_says_so(
    cli: Cli, orders: None, more: tuple[str, ...]
) -> None:
    with tailrace.open(cli.home) as here:
        states = here.create_topic("states", compact=True)
        for n in range(8):
            states.append([(b"k", b"%d" % n * 70_000)])
        (first,) = here.store.table.query(heads.head_key(states.id).p, limit=1).items
        entry = heads.Page.of(first).entries[0]
        here.store.objects.delete([heads.object_name(states.id, entry.gen, entry.id)])
        lost = [tailrace.errors.Lost(0, 0, 1)]
    ran = cli.fails("upkeep", "run", *more, code=1)
    assert "states: " in ran.err
    assert "cannot be read, and is not compacted: offset 0 of partition 0 of 'states'" in ran.err
    if more:
        errors = {done["topic"]: done["error"] for done in ran.json}
        assert errors["orders"] is None
        assert "cannot be read" in errors["states"]
    else:
        assert re.search(r"states +compacted \d records? away; left 1 chunk that cannot be read; .*finished", ran.out)
    assert "states: " in cli.fails("upkeep", "run", code=1).err, "and again"
    with tailrace.open(cli.home) as here:
        here.topic("states").quarantine(lost, "lost")
    assert [done["spared_chunks"] for done in cli("upkeep", "run", "--json").json] == [0, 1]


def test_retention_by_setting(cli: Cli, orders: None) -> None:
    cli("topic", "set", "orders", "retention_bytes=2KiB")
    assert "removed" in cli("upkeep", "run").out
    assert len(cli("topic", "read", "orders").out.splitlines()) < 60
    cli("topic", "set", "orders", "retention_ms=1ms", "retention_bytes=null")
    cli("upkeep", "run")
    described = cli("topic", "describe", "orders", "--json").json
    assert described["settings"]["merge_bytes"] == 64 << 20
    assert sum(o["next"] for o in described["offsets"]) == 60


def test_queues_are_tended(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", lambda by: 0)
    with tailrace.open(cli.home) as here:
        queue = here.queue("mails", shards=1)
        old = Put(dedup_key(queue.topic().id, "old"), {"id": "old", "token": "", "page": -1}, (Absent(),))
        here.store.table.write(old)
        assert queue.has("old")
        cli("upkeep", "run")
        assert not queue.has("old")


def test_what_is_refused(cli: Cli, orders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no duration" in cli.fails("upkeep", "run", "--every", "soon").err
    assert "no size" in cli.fails("upkeep", "run", "--rate", "fast").err
    assert "is 5 bytes a second, and would hardly ever end" in cli.fails("upkeep", "run", "--rate", "5").err
    assert "no topic 'other'" in cli.fails("upkeep", "run", "other").err
    monkeypatch.setitem(Home.upkeep.__kwdefaults__, "wait", 0.0)
    with tailrace.open(cli.home) as here, Lease(here.store, scheduler.LEASE) as lease:
        lease.acquire()
        assert f"by process {os.getpid()} on" in cli.fails("upkeep", "run").err


def test_an_interrupted_run_says_that_nothing_is_lost(cli: Cli, orders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler.HomeUpkeep, "run", interrupted)
    assert "what was done stays" in cli.fails("upkeep", "run", code=130).err


def test_every_so_often_until_it_is_stopped(cli: Cli, orders: None) -> None:
    command = [PROGRAM, "upkeep", "run", "--every", "0.1s", "--home", str(cli.home)]
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert ran.stdout is not None
    try:
        assert any("nothing to do in 1 topic" in line for line in ran.stdout)
    finally:
        ran.send_signal(signal.SIGINT)
        ran.communicate(timeout=30)
    assert ran.returncode == 130


def test_one_that_runs_every_so_often_outlives_another_that_is_at_it(
    cli: Cli, orders: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        lease.release()
        if len(slept) > 1:
            raise KeyboardInterrupt

    monkeypatch.setitem(Home.upkeep.__kwdefaults__, "wait", 0.0)
    # Not `time.sleep` itself: threads of the home sleep as well.
    monkeypatch.setattr("tailrace.cli.home.upkeep.time", SimpleNamespace(time=time.time, sleep=sleep))
    with tailrace.open(cli.home) as here, Lease(here.store, scheduler.LEASE) as lease:
        lease.acquire()
        ran = cli.fails("upkeep", "run", "--every", "1h", code=130)
    assert "under way already" in ran.err
    assert "tried again in 1h" in ran.err
    assert "orders" in ran.out
    assert slept == [3600, 3600]
