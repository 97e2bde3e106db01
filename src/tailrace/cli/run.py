"""`tailrace run`: a pipeline at work, watched."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.command import command
from tailrace.cli.options import HomeOption, JsonOption
from tailrace.cli.session import note
from tailrace.cli.show import console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tailrace.pipeline.definition import Definition
    from tailrace.pipeline.runner import Runner

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's file: .py or .toml.")]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], spark://host:7077, yarn, …")
]


def loaded(file: Path, home: str | None) -> Definition:
    """The pipeline of a file, perhaps in another home."""
    from dataclasses import replace

    from tailrace.pipeline.pipeline import load

    definition = load(file)
    return replace(definition, home=os.path.abspath(home) if "://" not in home else home) if home else definition


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "run")(run)


def run(
    file: FileArgument,
    once: Annotated[bool, typer.Option("--once", help="Copy, catch up, and end.")] = False,
    master: MasterOption = None,
    metrics: Annotated[
        int | None, typer.Option("--metrics", metavar="PORT", help="Serve Prometheus metrics here.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline: copy what is there, then follow what changes, until Ctrl-C.

    In a terminal it shows how far each table and each writer is; elsewhere it prints a line every few seconds, with
    --json a JSON object.  Ctrl-C ends it cleanly, a second one at once; the next run goes on where it left off.
    Exit codes: 0 ended as asked; 1 a writer or the source stopped, and why; 130 a second Ctrl-C.

    Examples:

        tailrace run shop.py
        tailrace run shop.toml --once
        tailrace run shop.py --master spark://cluster:7077 --metrics 9100
    """
    from tailrace.pipeline.runner import Runner
    from tailrace.spark import session

    definition = loaded(file, home)
    definition.check()
    if not as_json:
        note(f"starting Spark for the pipeline {definition.name!r} …")
    spark = session(master, app=f"tailrace {definition.name}", config={"spark.scheduler.mode": "FAIR"})
    runner = Runner(definition, spark)
    failed: list[BaseException] = []
    work = threading.Thread(target=_work, args=(runner, once, failed), name="tailrace-run")
    with _signals(runner), _metrics(runner, metrics):
        work.start()
        _watch(runner, work, as_json)
    work.join()
    spark.stop()
    if failed:
        raise failed[0]


def _work(runner: Runner, once: bool, failed: list[BaseException]) -> None:
    try:
        runner.run(once)
    except BaseException as error:
        failed.append(error)


@contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops cleanly, the second at once."""

    def stop(number: int, frame: Any) -> None:
        if runner.status.state == "stopping":
            os._exit(130)
        note("\nstopping: writers finish what they have begun (Ctrl-C again to end at once)")
        runner.stop()

    before = {which: signal.signal(which, stop) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


@contextmanager
def _metrics(runner: Runner, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from tailrace.cli.metrics import serve

    with serve(runner.status, port):
        yield


def _watch(runner: Runner, work: threading.Thread, as_json: bool) -> None:
    if sys.stdout.isatty() and not as_json:
        from rich.live import Live

        with Live(console=console(), refresh_per_second=4, get_renderable=lambda: view(runner.status.shown())):
            work.join()
        return
    last, rates = 0.0, Rates()
    while work.is_alive():
        work.join(0.2)
        if time.monotonic() - last >= 2.0 or not work.is_alive():
            last = time.monotonic()
            with suppress(BrokenPipeError):
                print(as_line(runner.status.shown(), rates, as_json), flush=True)


class Rates:
    """Records per second since the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def __call__(self, name: str, count: int) -> float:
        """The rate of one counter."""
        now = time.monotonic()
        at, before = self._seen.get(name, (now, count))
        self._seen[name] = (now, count)
        return (count - before) / (now - at) if now > at else 0.0


def as_line(status: dict[str, Any], rates: Rates, as_json: bool) -> str:
    """A status on one line."""
    if as_json:
        import json

        return json.dumps(status)
    copied = sum(s["copied"] for s in status["sources"].values())
    changes = sum(s["changes"] for s in status["sources"].values())
    sinks = "; ".join(
        f"{name} {s['state']} {s['rows']:,} rows, {s['lag']:,} behind" + (f": {s['error']}" if s["error"] else "")
        for name, s in status["sinks"].items()
    )
    rate = rates("records", status["records"])
    return f"{status['state']}: {copied:,} copied, {changes:,} changes, {rate:,.0f}/s | {sinks}"


_rates = Rates()


def view(status: dict[str, Any]) -> RenderableType:
    """The live view: what is read, table by table, and what is written, writer by writer."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble((status["pipeline"], "bold"), "  ", status["state"], f"  {status['records']:,} messages")
    if status["delay"]:
        head.append(f"  source {status['delay']:.1f} s ago")
    sources = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("FROM", "PHASE", "COPIED", "", "CHANGES"):
        sources.add_column(name, justify="right" if name in ("COPIED", "CHANGES") else "left")
    for name, s in list(status["sources"].items())[:20]:
        sources.add_row(name, s["phase"], f"{s['copied']:,}", _bar(s), f"{s['changes']:,}")
    if len(status["sources"]) > 20:
        sources.add_row(f"… and {len(status['sources']) - 20} more")
    sinks = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("INTO", "STATE", "ROWS", "BEHIND", "DELAY"):
        sinks.add_column(name, justify="right" if name in ("ROWS", "BEHIND", "DELAY") else "left")
    for name, s in status["sinks"].items():
        style = {"stopped": "red", "waiting": "yellow"}.get(s["state"], "green")
        sinks.add_row(name, Text(s["state"], style), f"{s['rows']:,}", f"{s['lag']:,}", f"{s['delay']:.1f} s")
    troubles = [Text(s["error"], "red") for s in status["sinks"].values() if s["error"]]
    return Group(head, Text(), sources, Text(), sinks, *troubles)


def _bar(source: dict[str, Any]) -> str:
    """How much of a copy is done."""
    if source["phase"] != "copy" or not source["pieces"]:
        return ""
    share = source["done"] / source["pieces"]
    return f"{'█' * round(share * 20):░<20} {share:4.0%}"
