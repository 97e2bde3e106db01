"""Environments: Python with the packages of one lock, built once and kept beside the servers."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.kept import PLACE, kept
from tests.servers.process import Missing

ROOT = Path(__file__).parents[2]


def environment(name: str) -> Path:
    """The folder with the programs of requirements/NAME.txt; the first call of a checkout installs them."""
    lock = ROOT / "requirements" / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    return kept(PLACE / name / digest[:12], lambda made: _install(lock, str(made))) / "bin"


def _install(lock: Path, made: str) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise Missing(f"no program 'uv' to install {lock.name} with; `pip install uv` brings it")
    for command in (
        [uv, "venv", "-q", "--relocatable", "--python", sys.executable, made],
        [uv, "pip", "install", "-q", "--system-certs", "--python", made, "--require-hashes", "-r", str(lock)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"{lock.name} could not be installed: {done.stderr.strip()[-300:]}")
