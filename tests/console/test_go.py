"""A program in Go that knows only the API: it appends, reads and works a queue."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import NONE
from tests.console.serving import OPERATOR, Client

PROGRAM = Path(__file__).parents[2] / "examples" / "http"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    if (go := shutil.which("go")) is None:
        pytest.skip(f"{NONE} Go: the example of the HTTP API in Go did not run; install Go 1.21 or newer")
    folder = tmp_path_factory.mktemp("go")
    env = {**os.environ, "GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    built = folder / "http"
    subprocess.run([go, "build", "-o", built, "."], cwd=PROGRAM, env=env, check=True, timeout=250)
    return built


def promised() -> str:
    """What the program's comment says that it prints."""
    text = (PROGRAM / "main.go").read_text().partition("It prints:\n")[2].partition("package main")[0]
    return "".join(f"{line}\n" for line in re.findall(r"^//\t(.+)$", text, re.MULTILINE))


def test_a_program_in_go_prints_what_it_says(program: Path, client: Client) -> None:
    env = {**os.environ, "TAILRACE_URL": f"http://127.0.0.1:{client.port}", "TAILRACE_TOKEN": OPERATOR}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised()
    refused = subprocess.run([program], env={**env, "TAILRACE_TOKEN": "x"}, capture_output=True, text=True, timeout=60)
    assert "401 No token" in refused.stderr
