"""`tailrace run` as people run it: in a process of its own, watched from another, stopped by signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.pipeline.run_view import Rates, RunView
from tailrace.cli.shared.output import console
from tailrace.coordination.lease import Lease
from tailrace.pipeline.runtime.status import SinkStatus, SourceStatus, Status
from tests.cli.runs import PROGRAM, Cli
from tests.cli.terminal import Terminal
from tests.pipeline.runs import until
from tests.pipeline.toys import rows
from tests.servers.process import free_ports

FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=2)
    .source("tests.pipeline.toys:source", tables=("shop.orders",), rows=50, changes=5)
    .save("tests.pipeline.toys:sink", name="c0", path="{folder}/c0")
)
"""


ERASED = "\x1b[1A\x1b[2K"
"""The cursor goes up to the last line, which is erased."""


# -- what is shown
def status() -> Status:
    made = Status("shop", "copying", records=1200, delay=0.25)
    made.sources = {
        "public.orders": SourceStatus("copy", pieces=8, done=2, copied=1000),
        "public.items": SourceStatus("sync"),
    }
    made.sinks = {"lake": SinkStatus("running", rows=900, lag=300, delay=1.5, oldest=int((time.time() - 7200) * 1000))}
    return made


def drawn(shown: Any) -> str:
    out = console()
    with out.capture() as captured:
        out.print(shown)
    return captured.get()


def test_the_live_view() -> None:
    now, made = [0.0], status()
    view = RunView(lambda: now[0])
    view.live(made.shown())
    now[0], made.records, made.sources["public.orders"].done, made.sinks["lake"].rows = 2.0, 1400, 4, 1000
    seen = drawn(view.live(made.shown()))
    assert "shop  copying  1,400 messages, 100/s  read 0.2 s after it happened" in seen
    assert "██████████░░░░░░░░░░  50% 4 s left" in seen
    assert ["lake", "running", "1,000", "50", "300", "2.0", "h", "1.5", "s"] in [
        line.split() for line in seen.splitlines()
    ]


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    """One such table ended the view, and with it the command, while the run went on."""
    made, names = status(), ["public.[/red]x", "public.[bold]y", "public.:key:"]
    made.sources = {name: SourceStatus("sync") for name in names}
    made.sinks = {"[/lake]": made.sinks["lake"]}
    seen = drawn(RunView().live(made.shown()))
    assert [name for name in [*names, "[/lake]"] if name not in seen] == []


def test_trouble_is_shown() -> None:
    made = status()
    made.error, made.sinks["lake"].error = "the source is away", "disk full"
    assert "the source is away\ndisk full" in drawn(RunView().live(made.shown()))
    line = RunView().line(made.shown(), False)
    assert line.startswith("copying (the source is away): 1,000 copied")
    assert line.endswith("lake running 900 rows, 300 behind for 2.0 h: disk full")


def test_trouble_is_said_once() -> None:
    """And behind the view, once the run has ended."""
    made = status()
    made.error = made.sinks["lake"].error = "a negative total"
    assert drawn(RunView().live(made.shown())).count("a negative total") == 1
    made.state = "stopped"
    assert "a negative total" not in drawn(RunView().live(made.shown()))


def test_messages_that_failed_and_were_passed_are_shown() -> None:
    made = status()
    assert "failed" not in drawn(RunView().live(made.shown())) + RunView().line(made.shown(), False)
    made.sinks["lake"].skipped = 2
    assert "lake: 2 messages failed, as on_error allows, and not delivered" in drawn(RunView().live(made.shown()))
    assert "lake running 900 rows, 2 failed, 300 behind" in RunView().line(made.shown(), False)


def test_a_run_whose_writers_have_all_stopped_says_so() -> None:
    made = status()
    made.state, made.sinks = "following", {"lake": SinkStatus("stopped"), "pond": SinkStatus("running")}
    assert made.shown()["state"] == "following"
    made.sinks["pond"].state = "stopped"
    assert made.shown()["state"] == "following, every writer stopped"
    made.state = "stopped"
    assert made.shown()["state"] == "stopped"


def test_an_age_is_that_of_what_is_pending_and_grows() -> None:
    sink = SinkStatus("stopped", lag=3, oldest=1000_000, delay=0.1)
    assert [sink.shown(now)["age"] for now in (1000.0, 1060.5)] == [0.0, 60.5]
    sink.lag = 0
    assert sink.shown(2000.0)["age"] == 0.0


def test_rates_are_of_the_last_seconds() -> None:
    now = [0.0]
    rates = Rates(5.0, lambda: now[0])
    assert rates("a", 0) == 0
    for now[0], count in ((1.0, 10), (4.0, 40), (8.0, 40), (12.0, 40)):
        last = rates("a", count)
    assert last == 0


# -- processes
@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FILE.format(folder=tmp_path))
    return tmp_path


def environment() -> dict[str, str]:
    """In which the toys can be imported, by Spark's workers too."""
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@contextmanager
def run(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "said").open("w") as said:
        command = [PROGRAM, "run", "shop.py", *options]
        made = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True, env=environment())
    try:
        yield made
    finally:
        if made.poll() is None:
            made.kill()
        made.wait()


@pytest.mark.spark
def test_watched_from_elsewhere_and_stopped(shop: Path) -> None:
    (port,) = free_ports(1)
    with run(shop, "--json", "--metrics", str(port)) as process:
        until(lambda: process.poll() is not None or len(rows(shop / "c0")) == 55, 200)
        assert process.poll() is None, (shop / "said").read_text()
        cli = Cli(shop / "home")
        until(lambda: cli("status", "shop", "--json").json["sinks"]["c0"]["rows"] == 55)
        shown = cli("status", "shop", "--json").json
        assert (shown["state"], shown["sinks"]["c0"]["rows"], shown["records"]) == ("following", 55, 55)
        assert cli("status").rows[1][:2] == ["shop", "following"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert 'tailrace_writer_rows_total{pipeline="shop",writer="c0"} 55' in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(30) == 0, (shop / "said").read_text()
        assert time.monotonic() - began < 30
    assert cli("status", "shop", "--json").json["state"] == "stopped"
    assert cli("status", str(shop / "shop.py"), "--json").json["state"] == "stopped", "by its file, as run takes it"
    lines = [json.loads(line) for line in (shop / "said").read_text().splitlines() if line.startswith("{")]
    assert lines[-1]["sinks"]["c0"]["state"] == "ended"
    assert cli("offset", "list", "shop", "--json").json == [{"writer": "c0", "acknowledged": 55, "pending": 0}]


@pytest.mark.spark
def test_ctrl_c_waits_for_a_writer_and_a_second_does_not(shop: Path) -> None:
    (shop / "c0").mkdir()
    (shop / "c0" / "slow").touch()
    with Terminal([PROGRAM, "run", shop / "shop.py"], environment(), columns=100) as terminal:
        terminal.wait_for("following", 200)
        terminal.interrupt()
        terminal.wait_for("stopping: writers finish what they have begun", 30)
        time.sleep(1)
        assert terminal.process.poll() is None, "the writer is in the middle of a batch"
        terminal.interrupt()
        assert terminal.end(10) == 130
    assert rows(shop / "c0") == []


def test_a_run_that_is_refused_leaves_nothing_on_the_screen_but_why(shop: Path) -> None:
    with tailrace.open(shop / "home") as home:
        lease = Lease(home.store, "pipeline-shop")
        assert lease.acquire(wait=0)
        with Terminal([PROGRAM, "run", shop / "shop.py"], environment(), columns=200) as terminal:
            terminal.wait_for("running already", 60)
            assert terminal.end(60) == 1
        lease.release()
    view, _, _ = terminal.seen.partition("tailrace: ")
    assert "FROM" not in view
    assert view.endswith(ERASED), view[-50:]


def _workers(driver: int) -> list[int]:
    """The Python processes of a run's Spark."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            own = f"TAILRACE_DRIVER={driver} ".encode() in (entry / "environ").read_bytes()
            if own and b"tailrace.pipeline.runtime.daemon" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc").exists(), reason="workers see their driver's end on Linux only")
def test_workers_end_with_a_driver_that_is_killed_and_the_next_run_starts_at_once(shop: Path) -> None:
    text = (shop / "shop.py").read_text()
    (shop / "shop.py").write_text(text.replace("changes=5", "changes=5, slow=600"))
    with run(shop) as process:
        until(lambda: process.poll() is not None or len(_workers(process.pid)) > 1, 200)
        assert process.poll() is None, (shop / "said").read_text()
        process.kill()
        process.wait()
        until(lambda: len(_workers(process.pid)) <= 1, 30)
    (shop / "shop.py").write_text(text)
    began = time.monotonic()
    command = [PROGRAM, "run", "shop.py", "--once"]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=200, env=environment())
    assert done.returncode == 0, done
    assert "waiting up to" not in done.stderr, time.monotonic() - began
    assert len({row[1] for row in rows(shop / "c0")}) == 50


@pytest.mark.spark
def test_a_run_whose_whole_group_is_ended_ends_without_a_trace(shop: Path) -> None:
    """As systemd does: Java and the workers get SIGTERM, too."""
    with (shop / "said").open("w") as said:
        command = [PROGRAM, "run", "shop.py"]
        made = subprocess.Popen(command, cwd=shop, stdout=said, stderr=said, env=environment(), start_new_session=True)
    try:
        until(lambda: made.poll() is not None or len(rows(shop / "c0")) == 55, 200)
        os.killpg(made.pid, signal.SIGTERM)
        assert made.wait(60) in (0, 1)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(made.pid, signal.SIGKILL)
        made.wait()
    text = (shop / "said").read_text()
    assert "stopping: writers finish" in text
    assert "Traceback" not in text, text


@pytest.mark.spark
def test_what_a_function_prints_is_seen(shop: Path) -> None:
    text = (shop / "shop.py").read_text().replace(".save(", ".transform(pretty(0)).save(")
    (shop / "shop.py").write_text("from tailrace.pipeline.functions import pretty\n" + text)
    command = [PROGRAM, "run", "shop.py", "--once"]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 55
    assert "c0 ended 55 rows" in done.stderr


@pytest.mark.spark
def test_what_is_printed_can_be_piped(tmp_path: Path) -> None:
    text = FILE.format(folder=tmp_path).replace('"tests.pipeline.toys:sink", name="c0"', '"stdout"')
    (tmp_path / "shop.py").write_text(re.sub(r', path="[^"]*"', "", text))
    command = [PROGRAM, "run", "shop.py", "--once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done
    assert {json.loads(line)["namespace"] for line in done.stdout.splitlines()} == {"shop.orders"}
    assert len(done.stdout.splitlines()) == 55
    assert "stdout ended 55 rows" in done.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("--master", "nonsense"), "Master must either be yarn or start with spark, k8s, or local"),
        (("--master", "local[x]"), "Could not parse Master URL: 'local[x]'"),
        (("--conf", "spark.executor.memory=abc"), "Executor memory must be a positive number"),
    ],
)
def test_a_spark_that_cannot_be_started_is_one_line(shop: Path, option: tuple[str, str], why: str) -> None:
    command = [PROGRAM, "run", "shop.py", "--once", *option]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"tailrace: Spark cannot be started: {why}; look at --master and --conf")
    assert "Traceback" not in done.stderr + done.stdout


def test_what_py4j_logs_when_java_ends_is_not_shown() -> None:
    """It logs some of it to the root logger, where others' words stay."""
    code = """
import logging
from tailrace.cli.pipeline.run import _silence_end_of_java
_silence_end_of_java()
exec(compile("logging.exception('java is gone')", "/lib/py4j/java_gateway.py", "exec"))
logging.getLogger("py4j.clientserver").error("java is gone")
logging.error("something else")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "something else" in done.stderr
    assert "java is gone" not in done.stderr
