"""Running the command line: inside this process, which is quick, and as a process of its own, which is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tailrace.cli.main import build
from tailrace.errors import TailraceError

PROGRAM = Path(sys.executable).with_name("tailrace")


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]


class Cli:
    """Commands on one home, given by the environment as people would."""

    def __init__(self, home: Path | str) -> None:
        self.home = home

    def __call__(self, *args: object, input: str | bytes | None = None, **env: str) -> Ran:
        """Run a command that must do what it should."""
        return self.fails(*args, input=input, code=0, **env)

    def fails(self, *args: object, input: str | bytes | None = None, code: int = 1, **env: str) -> Ran:
        """Run a command that must end with this exit code; an error of tailrace's stays what it is."""
        runner = CliRunner(env={"TAILRACE_HOME": str(self.home), "COLUMNS": "80", **env})
        result = runner.invoke(build(), list(map(str, args)), input=input)
        if isinstance(result.exception, TailraceError):
            ran = Ran(1, result.stdout, f"{result.stderr}tailrace: {result.exception}")
        else:
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            ran = Ran(result.exit_code, result.stdout, result.stderr)
        assert ran.code == code, ran
        return ran

    def process(self, *args: object, input: bytes = b"", **env: str) -> Ran:
        """Run it as people do, in a process of its own."""
        done = subprocess.run(
            [PROGRAM, *map(str, args)], input=input, capture_output=True, timeout=60, env=self.env(**env)
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def env(self, **more: str) -> dict[str, str]:
        """The environment of such a process."""
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return {**plain, "TAILRACE_HOME": str(self.home), "COLUMNS": "80", **more}
