"""A program in a terminal of a given size: what it shows, and keys typed into it."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Terminal:
    """Runs a program with a pseudo-terminal as its stdin, stdout and stderr; used in a `with` block."""

    def __init__(
        self, command: Sequence[str | Path], env: Mapping[str, str], *, columns: int = 80, stdin: Path | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        plain = {name: value for name, value in env.items() if name not in ("COLUMNS", "NO_COLOR")}
        with (stdin or Path(os.devnull)).open("rb") as source:
            self.process = subprocess.Popen(
                command,
                stdin=source if stdin else theirs,
                stdout=theirs,
                stderr=theirs,
                env={**plain, "TERM": "xterm-256color"},
                start_new_session=True,
            )
        os.close(theirs)
        self.seen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # all of a pipe, not only the shell
        self.process.wait()
        os.close(self._ours)

    def wait_for(self, text: str, seconds: float = 30) -> str:
        """Everything shown so far, once it has this text."""
        until = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < until, f"no {text!r} in {self.seen!r}"
            assert self._read(0.1), f"ended without {text!r}: {self.seen!r}"
        return self.seen

    def _read(self, seconds: float) -> bool:
        """Take in what is shown; False at the end."""
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                return False
            self.seen += self._decoder.decode(data)
            return bool(data)
        return True

    def type(self, text: str) -> None:
        """Type some keys."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """What the terminal does on Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, seconds: float = 30) -> int:
        """The exit code, when it has ended."""
        until = time.monotonic() + seconds
        while self._read(0.1) and time.monotonic() < until:
            pass
        return self.process.wait(max(0.1, until - time.monotonic()))
