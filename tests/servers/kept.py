"""What takes long to make: made once for a checkout, by the first process that asks for it while the others wait."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

PLACE = Path(__file__).parents[2] / ".servers"


def kept(place: Path, make: Callable[[Path], object]) -> Path:
    """A file or folder.  `make` makes it elsewhere; it gets its name once it is whole."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f"{place.name}.lock").open("w") as one_at_a_time:
            fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
            if not place.exists():
                with tempfile.TemporaryDirectory(dir=place.parent, prefix="partial-") as fresh:
                    made = Path(fresh, "made")
                    make(made)
                    made.rename(place)
    return place


def install(*packages: str) -> None:
    """Install Debian's packages if this user may, after other processes that do so."""
    apt = shutil.which("apt-get")
    if apt is None:
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "apt.lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        wait = ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2"]
        command = [apt, *wait, "install", "-qq", "--no-install-recommends", *packages]
        if subprocess.run(command, capture_output=True).returncode:  # the lists may be old, or missing
            subprocess.run([apt, *wait, "update", "-qq"], capture_output=True)
            subprocess.run(command, capture_output=True)
