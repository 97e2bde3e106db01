"""`tailrace run`: runs a pipeline, and shows its status meanwhile."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from tailrace.cli.pipeline.run_view import RunView
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import console
from tailrace.cli.shared.session import note
from tailrace.errors import BadInput, BadSetting

if TYPE_CHECKING:
    from pyspark import SparkContext
    from rich.console import RenderableType

    from tailrace.pipeline.define.definition import Definition
    from tailrace.pipeline.run.runner import Runner

DAEMON = "tailrace.pipeline.runtime.daemon"
LINE_INTERVAL_SECONDS = 2.0
"""Seconds between two lines of status if there is no terminal."""
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's file: .py or .toml.")]
DefaultFileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The pipeline's file; if not given, pipeline.py or pipeline.toml."),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], spark://host:7077, yarn, …")
]


def loaded(file: Path | None, home: str | None) -> Definition:
    """Return the pipeline of a file, in another home if `home` names one; without a file, that of pipeline.py or
    pipeline.toml in this folder."""
    from tailrace.pipeline.define.builder import load

    definition = load(file or _default_file())
    return replace(definition, home=os.path.abspath(home) if "://" not in home else home) if home else definition


def _default_file() -> Path:
    found = [path for path in map(Path, ("pipeline.py", "pipeline.toml")) if path.exists()]
    if len(found) == 1:
        return found[0]
    why = "both pipeline.py and pipeline.toml" if found else "neither pipeline.py nor pipeline.toml"
    raise BadInput(f"this folder has {why}; name the pipeline's file, or write one with `tailrace init SOURCE SINK`")


def register(app: typer.Typer) -> None:
    """Add `tailrace run`."""
    command(app, "run")(run)


def run(
    file: DefaultFileArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Copy, catch up with the changes, and end.")] = False,
    master: MasterOption = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option("--metrics", metavar="PORT", help="Serve metrics for Prometheus on this port.")
    ] = None,
    upkeep: Annotated[
        bool, typer.Option("--upkeep/--no-upkeep", help="Run upkeep of the home in the background, every hour.")
    ] = True,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline: copy what is there, then follow what changes, until Ctrl-C.

    In a terminal it shows how far each table and each writer is; elsewhere it prints a line every few seconds, with
    --json a JSON object.  Ctrl-C ends it cleanly, a second one at once; the next run continues where it left off.
    Exit codes: 0 ended as asked; 1 a writer or the source stopped, and why; 130 a second Ctrl-C.

    Examples:

        tailrace run
        tailrace run shop.py
        tailrace run shop.toml --once
        tailrace run shop.py --master spark://cluster:7077 --conf spark.executor.memory=4g --metrics 9100
    """
    from tailrace.pipeline.run.runner import Runner

    definition = loaded(file, home)
    if not upkeep:
        definition = replace(definition, upkeep_seconds=None)
    definition.check()
    settings = dict(map(_setting, conf or ()))
    failed: list[BaseException] = []
    with _spark(definition, master, settings, quiet=as_json) as start:
        runner = Runner(definition, start, note)
        work = threading.Thread(target=_work, args=(runner, once, failed), name="tailrace-run")
        with _signals(runner), _metrics(runner, metrics):
            work.start()
            _watch(runner, work, as_json, sys.stderr if _prints(definition) else sys.stdout)
        work.join()
    if failed:
        raise failed[0]


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise BadSetting(f"--conf takes spark.NAME=VALUE, not {text!r}")
    return name, value


def _silence_end_of_java() -> None:
    """Silence pyspark's threads: if Java is ended before this process, as systemd does, they would print errors."""
    from pyspark import accumulators

    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(
        lambda record: "py4j" not in Path(record.pathname).parts
    )  # some messages go to the root logger
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        if server := getattr(accumulators, name, None):
            server.handle_error = lambda *_: None


@contextmanager
def _spark(
    definition: Definition, master: str | None, settings: Mapping[str, str], *, quiet: bool
) -> Iterator[Callable[[], SparkContext]]:
    """Yields a function that starts Spark for one run; stops Spark after the block.

    Spark runs the jobs of all writers at once, and local workers print nothing on this terminal."""
    from tailrace.cli.shared.spark_job import log, starting
    from tailrace.coordination.process import name_driver
    from tailrace.pipeline.functions.frames import has_frames
    from tailrace.spark.runtime.class_archive import made_later
    from tailrace.spark.runtime.java import java_home
    from tailrace.spark.session import context

    java = java_home()
    made: list[SparkContext] = []
    _silence_end_of_java()
    local = (master or os.environ.get("TAILRACE_SPARK_MASTER") or "local").startswith("local")
    config = {"spark.scheduler.mode": "FAIR"} | ({"spark.python.daemon.module": DAEMON} if local else {})
    frames = any(has_frames(sink.functions) for sink in definition.sinks)

    def start() -> SparkContext:
        if not quiet:
            note(f"starting Spark for the pipeline {definition.name!r} …")
        if local:
            name_driver()
        with log() as said, starting(said):
            app = f"tailrace {definition.name}"
            made.append(context(master, app=app, config={**config, **settings}, frames=frames, said=said))
        return made[0]

    try:
        yield start
    finally:
        for spark in made:
            with suppress(Exception):  # Java may have ended already
                spark.stop()
            made_later(java)


def _work(runner: Runner, once: bool, failed: list[BaseException]) -> None:
    try:
        runner.run(once)
    except BaseException as error:
        failed.append(error)


@contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """In this block, the first Ctrl-C or SIGTERM stops the run cleanly, and the second ends the process at once."""
    asked: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if asked:
            os._exit(130)
        asked.append(number)
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
    from tailrace.cli.home.metrics import of_run, serve

    with serve(lambda: of_run(runner.status.shown()), port):
        yield


def _prints(definition: Definition) -> bool:
    """Return whether the pipeline prints messages to stdout; then the lines about the run go to stderr."""
    from tailrace.pipeline.functions.pretty import Pretty

    pretty = any(isinstance(function, Pretty) for sink in definition.sinks for function in sink.functions)
    return pretty or any(sink.adaptor == "stdout" for sink in definition.sinks)


def _watch(runner: Runner, work: threading.Thread, as_json: bool, out: TextIO) -> None:
    shown = RunView()
    if sys.stdout.isatty() and not as_json:
        from rich.live import Live

        def show() -> RenderableType:
            return shown.live(runner.status.shown())

        with Live(console=console(), refresh_per_second=4, get_renderable=show) as live:
            work.join()
            live.transient = not runner.status.sinks  # of a refused run only the error stays
        return
    last = time.monotonic()
    while work.is_alive():
        work.join(0.2)
        over = not work.is_alive() and runner.status.state != "starting"  # a refused run has no last line
        shows = as_json or bool(runner.status.sinks)  # before the sinks are known, there is nothing to show
        if shows and (time.monotonic() - last >= LINE_INTERVAL_SECONDS or over):
            last = time.monotonic()
            with suppress(BrokenPipeError):
                print(shown.line(runner.status.shown(), as_json), file=out, flush=True)
