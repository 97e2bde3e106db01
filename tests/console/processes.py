"""`tailrace serve` as a process of its own, that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.console.serving import Client


@dataclass
class Process:
    """A server's process, and a client of it."""

    child: subprocess.Popen[str]
    client: Client

    def kill(self) -> None:
        """kill -9."""
        self.child.kill()
        self.child.wait(30)

    def stop(self) -> int:
        """Ctrl-C; gives the exit code."""
        self.child.send_signal(signal.SIGINT)
        return self.child.wait(30)


@contextmanager
def process(home: Path, *options: str) -> Iterator[Process]:
    """A server of a home, killed at the end if it still runs."""
    program = [sys.executable, "-c", "from tailrace.cli.main import main; main()"]
    words = [*program, "serve", "--home", str(home), "--port", "0", "--json", *options]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert child.stdout is not None
        started = json.loads(child.stdout.readline())
        port = urlsplit(started["address"]).port
        assert port is not None
        yield Process(child, Client(port, started["token"]))
    finally:
        child.kill()
        child.wait(30)
        if child.stdout is not None:
            child.stdout.close()
