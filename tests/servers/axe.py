"""axe-core, which finds what people who do not see a page, or use no mouse, could not use.  From npm, once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.servers import npm
from tests.servers.kept import PLACE, kept

VERSION = "4.10.3"


def script() -> Path:
    """The script to put into a page; `Missing` where it cannot be had."""
    modules = kept(PLACE / f"axe-core-{VERSION}", partial(npm.install, f"axe-core@{VERSION}"))
    return modules / "axe-core" / "axe.min.js"
