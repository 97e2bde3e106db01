"""The killer: ends the run, either server or Spark's workers at random, and starts them again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.adaptors.postgres.place import Place
from tests.adaptors.postgres.test_faults import Mortal
from tests.pipeline.runs import process, workers

KINDS = ("run", "source", "sink", "workers", "stop")
STOPPED = (0, -signal.SIGTERM)
"""How a run ends that was asked to stop: well, or by the signal, where it has only begun to start."""

MOST_BYTES = 1 << 20
"""So much of what a run has printed is looked at, ten times a second; a status of all tables has 100 KB."""


class Run:
    """`tailrace run` of the pipeline's file, which can be ended and started again."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env, self._stack = folder, env, contextlib.ExitStack()
        self.process: subprocess.Popen[bytes] | None = None
        self._before = 0

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Begin, or begin again."""
        self._before = self._file.stat().st_size if self._file.exists() else 0
        arguments = ("run", "torture.py", "--json", "--master", "local[2]", "--no-upkeep", *options)
        self.process = self._stack.enter_context(process(self._folder, *arguments, env=self._env))
        return self.process

    def kill(self) -> None:
        """kill -9."""
        self._stack.close()

    def stop(self, seconds: float = 120) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        finally:
            self._stack.close()

    @property
    def _file(self) -> Path:
        return self._folder / "said"

    @property
    def said(self) -> str:
        """What it has printed since it was started last; of very much the end."""
        if not self._file.exists():
            return ""
        with self._file.open("rb") as file:
            file.seek(max(self._before, file.seek(0, os.SEEK_END) - MOST_BYTES))
            return file.read().decode(errors="replace")

    @property
    def status(self) -> dict[str, Any]:
        """What it has said last of itself."""
        for line in reversed(self.said.splitlines()):
            if line.startswith("{") and line.endswith("}"):
                with contextlib.suppress(json.JSONDecodeError):
                    found: dict[str, Any] = json.loads(line)
                    return found
        return {}

    @property
    def progress(self) -> str:
        """How far it is: what changes as long as anything is read or delivered."""
        shown = self.status
        sinks = {name: sink["acknowledged"] for name, sink in shown.get("sinks", {}).items()}
        return f"{shown.get('state')}: {shown.get('records')} read, acknowledged {sinks}"

    def is_at_work(self, *states: str) -> bool:
        """Whether it has come to one of these states."""
        return self.status.get("state") in states


class Killer:
    """Kills now and then; its own randomness, so that the writers' does not depend on when."""

    def __init__(
        self, seed: int, run: Run, source: Mortal, sink: Mortal, kinds: Sequence[str], pause: tuple[float, float]
    ) -> None:
        self._rng, self._run, self._source, self._sink = random.Random(f"{seed} killer"), run, source, sink
        self._kinds, self._pause, self._began = kinds, pause, time.monotonic()
        self._next: list[str] = []
        """What comes before any comes again."""
        self.history: list[str] = []

    def strike(self) -> None:
        """Kill something, and start it again."""
        if not self._next:
            self._next = self._rng.sample(self._kinds, len(self._kinds))
        kind = self._next.pop()
        self.history.append(f"{time.monotonic() - self._began:8.1f} s  {kind}")
        getattr(self, f"_{kind}_")()

    def pause(self) -> float:
        """Seconds until the next time."""
        return self._rng.uniform(*self._pause)

    def is_patient(self) -> bool:
        """Whether what was killed may first come back to work."""
        return self._rng.random() < 0.7

    def _run_(self) -> None:
        self._run.kill()
        self._run.start()

    def _stop_(self) -> None:
        code = self._run.stop()
        assert code in STOPPED, f"a run that was asked to stop ended with {code}:\n{self._run.said[-3000:]}"
        self._run.start()

    def _source_(self) -> None:
        _bounce(self._source, self._rng.uniform(0, 3))

    def _sink_(self) -> None:
        _bounce(self._sink, self._rng.uniform(0, 3))

    def _workers_(self) -> None:
        assert self._run.process is not None
        found = workers(self._run.process.pid)
        for pid in self._rng.sample(found, self._rng.randrange(len(found) + 1)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _bounce(server: Mortal, away: float) -> None:
    assert server.server is not None
    with Place(server.server, "postgres") as place:
        server.kill(place)
    time.sleep(away)
    server.start()
