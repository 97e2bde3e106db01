"""axe-core, which finds what people who do not see a page, or use no mouse, could not use.  From npm, once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.process import Missing

VERSION = "4.10.3"
FOLDER = Path(__file__).parents[2] / ".servers" / f"axe-core-{VERSION}"


def script() -> Path:
    """The script to put into a page; `Missing` where it cannot be had."""
    found = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
    if not found.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--silent", "--no-save", "--prefix", str(FOLDER), f"axe-core@{VERSION}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"npm does not run: {error}") from None
        if done.returncode or not found.exists():
            raise Missing(f"npm cannot install axe-core {VERSION}: {done.stderr.strip()[-300:]}")
    return found
