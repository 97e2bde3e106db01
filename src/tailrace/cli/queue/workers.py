"""`tailrace queue work`: processes that handle a queue's messages, started again when they die."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.queue.queues import say_if_made
from tailrace.cli.queue.stats import QueueArgument
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import counted, print_json
from tailrace.cli.shared.session import note, opened
from tailrace.errors import BadInput, UnknownQueue, nearest

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.queue import Worker

MAX_FUNCTIONS_NAMED = 20
"""The most functions of a module that an error names if the one asked for is not there."""
RESTART_PAUSE_SECONDS = 1.0
"""Seconds before a process that died is started again."""


def handler_of(given: str) -> Callable[[Any], Any]:
    """Return the function that MODULE:HANDLER names, also of a module in the working folder; raise `BadInput` if there
    is none."""
    module, _, name = given.partition(":")
    if not module or not name:
        raise BadInput(f"a handler is MODULE:FUNCTION, as in shop.mail:send, not {given!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        where = f"; looked in {Path.cwd()} and where Python finds modules" if _is_missing(module, error) else ""
        raise BadInput(f"the handler {given!r} cannot be imported: {type(error).__name__}: {error}{where}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadInput(f"the handler {given!r} cannot be imported: {_has_not(found, part)}")
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"the handler {given!r} is a {type(found).__name__}, not a function")
    from tailrace.queue import Worker

    Worker.check_handler(found)
    return found  # type: ignore[no-any-return]


def _is_missing(module: str, error: BaseException) -> bool:
    """Return whether the handler's own module was not found, rather than one that it imports."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _has_not(found: Any, part: str) -> str:
    """Return the text that a module or object has no such name, where it is from, and which functions it has."""
    place = getattr(found, "__file__", None)
    where = f"{getattr(found, '__name__', found)}{f' ({place})' if place else ''}"
    names = [one for one, value in vars(found).items() if callable(value) and not one.startswith("_")]
    near = nearest(part, names)
    hint = f"; did you mean {near!r}?" if near else ";"
    shown = (
        ", ".join(names[:MAX_FUNCTIONS_NAMED]) + (", …" if len(names) > MAX_FUNCTIONS_NAMED else "")
        if names
        else "none"
    )
    return f"{where} has no {part!r}{hint} functions there: {shown}"


def register(app: typer.Typer) -> None:
    """Add `tailrace queue work`."""
    command(app)(work)


def work(
    queue: QueueArgument,
    handler: Annotated[str, typer.Argument(metavar="MODULE:HANDLER", help="The function that handles an envelope.")],
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, metavar="N", help="Run N processes.")] = 1,
    threads: Annotated[
        int, typer.Option("--threads", "-t", min=1, metavar="N", help="Run N handlers in each process.")
    ] = 8,
    drain: Annotated[bool, typer.Option("--drain", help="End once no message of the queue is open.")] = False,
    supervised: Annotated[
        bool,
        typer.Option("--supervised", hidden=True, help="This process is one of several that another one has started."),
    ] = False,
    home: HomeOption = None,
    json_too: JsonOption = False,
) -> None:
    """Handle the messages of a queue, until Ctrl-C or SIGTERM, which end it cleanly; a second one does not wait.

    If one of several processes dies, it is started again.  With --json each process prints at its end what it handled.

    Examples:

        tailrace queue work emails shop.mail:send
        tailrace queue work emails shop.mail:send --processes 4 --threads 2
        tailrace queue work emails shop.mail:send --drain
    """
    function = handler_of(handler)
    if processes > 1:
        with opened(home) as here, say_if_made(here, queue):
            here.queue(queue).topic(create=True)
        options = ["--threads", str(threads), *(["--home", home] if home else []), *(["--drain"] if drain else [])]
        words = ["queue", "work", queue, handler, "--supervised", *options, *(["--json"] if json_too else [])]
        note(f"handling {queue!r} with {processes} processes; Ctrl-C ends")
        Supervisor([sys.executable, "-c", _PROGRAM, *words], processes, lambda: _is_there(home, queue)).run()
        return
    with opened(home) as here, say_if_made(here, queue):
        here.queue(queue).topic(create=not supervised)
        with here.queue(queue).tail(function, threads=threads) as worker:
            if not supervised:
                note(f"handling {queue!r} as {worker.id}; Ctrl-C ends")
            if drain:
                _drained(here, queue, worker)
            else:
                worker.run_forever()
    if json_too:
        print_json({"acked": worker.acked, "errored": worker.errored, "dead": worker.dead_letters})
    else:
        note(_summary(queue, worker))


def _summary(queue: str, worker: Worker) -> str:
    """Return what a worker has done until its end."""
    failed = f", {counted(worker.errored, 'attempt')} failed" if worker.errored else ""
    dead = f", {counted(worker.dead_letters, 'dead letter')}: `tailrace queue dead {queue}`"
    return f"handled {counted(worker.acked, 'message')}{failed}{dead if worker.dead_letters else ''}"


_PROGRAM = "from tailrace.cli.main import main; main()"


def _is_there(home: str | None, queue: str) -> bool:
    with opened(home) as here:
        return queue in here.queues()


def _drained(home: Home, queue: str, worker: Worker) -> None:
    """Wait until everything in the queue is done or the worker has ended; raise the worker's error."""
    if home.queue(queue).stats().paused:
        note(f"queue {queue!r} is paused, so nothing is handed out; `tailrace queue play {queue}` goes on")
    while worker.running and not home.queue(queue).drain(0.2):
        pass
    if worker.error is not None:
        raise worker.error


class Supervisor:
    """Runs several processes; starts a process that has died again while the queue exists; ends all at a signal."""

    def __init__(self, words: list[str], count: int, is_there: Callable[[], bool]) -> None:
        self._words, self._count, self._is_there = words, count, is_there
        self._asked = 0
        """How many signals have asked the supervisor to end."""

    def run(self) -> None:
        """Run until a signal comes, every process has ended with exit code 0, or the queue is gone."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)
        running = [self._start() for _ in range(self._count)]
        try:
            while not self._asked and any(one.poll() != 0 for one in running):  # None: it runs
                running = [self._renewed(one) for one in running]
                time.sleep(0.1)
        finally:
            self._end(running)

    def _ask(self, *_: object) -> None:
        self._asked += 1

    def _start(self) -> subprocess.Popen[bytes]:
        # In a session of its own a process does not get the terminal's Ctrl-C: the supervisor ends it.
        return subprocess.Popen(self._words, start_new_session=True)

    def _renewed(self, one: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Return the process, or a new one in its place if it has died; raise `UnknownQueue` if the queue is gone."""
        if one.poll() in (None, 0) or self._asked:
            return one
        note(f"process {one.pid} ended with {_how(one.returncode)}, and is started again")
        time.sleep(RESTART_PAUSE_SECONDS)
        if not self._is_there():
            raise UnknownQueue("the queue was deleted; its processes end")
        return one if self._asked else self._start()

    def _end(self, running: list[subprocess.Popen[bytes]]) -> None:
        told = 0
        while left := [one for one in running if one.poll() is None]:
            if told < max(1, self._asked):
                told += 1
                for one in left:
                    one.terminate()
            time.sleep(0.05)


def _how(code: int) -> str:
    """Return an exit code, or the name of the signal that ended a process."""
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"
