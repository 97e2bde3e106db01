"""A server's process: started on loopback, waited for, and stopped by its pid."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


class Missing(Exception):
    """A server cannot be had on this machine; the message says why and how to get it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and what a client needs to talk to it."""

    name: str
    url: str
    pid: int
    key: str = "tailrace"
    secret: str = "not-a-secret"
    region: str = "us-east-1"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def program(name: str, package: str) -> str:
    """The path of a program that a package has put beside this Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise Missing(f"no program {name!r}; `pip install {package}` brings it")
    return found


@contextlib.contextmanager
def folder(data: Path | None) -> Iterator[Path]:
    """The given folder, which is kept, or a new one, which is not."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-server-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@contextlib.contextmanager
def running(
    command: Sequence[str],
    ready: Callable[[], bool],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    grace: float = 5,
    patience: float = 60,
) -> Iterator[int]:
    """Start a command, wait until it is ready, give its pid; at the end ask it to stop, and kill it after `grace`."""
    # A test run that is killed cannot stop its servers; the kernel then does.
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*guard, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=log.parent
        )
    try:
        _wait(process, ready, log, Path(command[0]).name, patience)
        yield process.pid
    finally:
        _stop(process, grace)


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, name: str, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{name} did not get ready, exit code {process.returncode}:\n{tail}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes], grace: float) -> None:
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
