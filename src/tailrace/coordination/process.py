"""Processes: the user that runs a process, and whether the holder of a lease is known to have ended.

On Linux that is known at once, for processes of the same boot and the same pid namespace: pid 7 in a container is
another process than pid 7 on the host.  Elsewhere it is not known, and a holder counts as gone when its beat stands
still."""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def user() -> str:
    """The user that runs this process; a number where the user has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def name_driver() -> None:
    """Tell child processes this process's id, in the environment: Spark's workers end when it does."""
    os.environ["TAILRACE_DRIVER"] = f"{os.getpid()} {life()}"


def life(pid: int | None = None) -> str:
    """A text that differs each time a pid is used; "" if there is no such process, or if that is unknown."""
    started = _started(os.getpid() if pid is None else pid)
    machine = _machine(os.getpid())
    return f"{machine}/{started}" if machine and started else ""


def has_ended(shown: Mapping[str, Any]) -> bool:
    """Whether a holder, by what its item shows, ran on this machine and has ended. False: it may be alive."""
    machine, _, started = str(shown.get("life", "")).rpartition("/")
    if not machine or machine != _machine(os.getpid()):
        return False
    now = _started(shown["pid"])
    return not _exists(shown["pid"]) if now is None else now != started


def is_alive(shown: Mapping[str, Any]) -> bool:
    """Whether a holder certainly runs on this machine."""
    return bool(shown.get("life")) and shown["life"] == life(shown["pid"])


@functools.cache
def _machine(_pid: int) -> str:
    """Identifies this boot of this machine, and the pid namespace of this process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    """Whether a process exists, even one of another user that /proc hides."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; "" if only its exit code is left, None if this process may not see
    it."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if state in "ZX" else fields[18]
