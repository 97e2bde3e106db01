"""npm: packages of the npm registry, unpacked into a folder; none of their scripts is run."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

from tests.servers.process import Missing

SECONDS = 300
FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--fetch-retries=1", "--loglevel=error")


def install(package: str, made: Path) -> None:
    """Install a package (`name@version`) and what it needs; `made` becomes its `node_modules`."""
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(f"npm is not there to install {package}; install Node.js")
    command = [npm, "install", *FLAGS, "--prefix", str(made.parent), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=_environment())
    except subprocess.TimeoutExpired:
        raise Missing(f"`npm install {package}` took longer than {SECONDS} s") from None
    if done.returncode:
        raise Missing(f"`npm install {package}` failed: {done.stderr.strip()[-300:]}")
    (made.parent / "node_modules").rename(made)


def _environment() -> dict[str, str]:
    """Node trusts the certificates of this system too, as pip does: its own list lacks those of a company's proxy."""
    system = ssl.get_default_verify_paths().cafile
    return {"NODE_EXTRA_CA_CERTS": system, **os.environ} if system else dict(os.environ)
