"""Processes that are stopped (SIGSTOP) for a while."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

LOCKED = """
    import sqlite3, sys

    sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None).execute("BEGIN IMMEDIATE")
"""
"""Fails while another process holds the database's lock.  A process of its own: a second SQLite in this one would take
away the locks of the first."""


def stop_outside_a_commit(worker: subprocess.Popen[Any], folder: Path) -> None:
    """Stop a process while it does not hold the database's lock: inside a commit it would keep out everybody."""
    probe = [sys.executable, "-c", textwrap.dedent(LOCKED), str(folder / "tailrace.db")]
    worker.send_signal(signal.SIGSTOP)
    while subprocess.run(probe, stderr=subprocess.DEVNULL).returncode:
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.02)
        worker.send_signal(signal.SIGSTOP)
