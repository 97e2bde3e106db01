"""Homes in Spark's Python workers: opened once per process, after the fork, and kept for the tasks that follow."""

from __future__ import annotations

import gc
import os
import socket
import sys

from tailrace import home as homes
from tailrace.errors import BadHome, BadSetting
from tailrace.home import Home
from tailrace.home.open_homes import is_open, open_once

LOOPBACK = ("127.", "localhost", "[::1]")


def home_at(url: str) -> Home:
    """The home of this URL, opened once in this process."""
    fresh = not is_open(url)
    home = open_once(url)
    if fresh and _in_worker():
        # Spark collects garbage after every task, and each time would scan all modules, for some 25 ms
        gc.freeze()
    return home


def _in_worker() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name == "pyspark.daemon"


def settled(url: str | None) -> str:
    """The URL of the home that a job means, in a form that means the same to every process on every host; for the
    driver."""
    url = url or os.environ.get("TAILRACE_HOME") or homes.DEFAULT
    if url.startswith("memory:"):
        raise BadHome("a memory:// home lives in one process, and Spark has several; use a folder or s3://…")
    return url if "://" in url else os.path.abspath(url)


def on_disk(url: str) -> bool:
    """Whether the home of a Spark job is a folder, which executors on other hosts may not see."""
    return "://" not in url or url.startswith("file:")


def one_host(master: str) -> bool:
    """Whether all of a Spark master's executors are on this machine."""
    return master.startswith("local") or any(master.startswith(f"spark://{name}") for name in LOOPBACK)


def check_reach(url: str, everywhere: bool, driver: str | None = None) -> None:
    """Refuse a home in a folder that executors on other hosts cannot see.  `driver` is the host on which the job was
    planned."""
    if on_disk(url) and not everywhere and driver != socket.gethostname():
        raise BadSetting(
            f"the home {url} is a folder of one machine, and this job runs on several; use an s3:// home, or say "
            "option('sharedHome', 'true') if all of them have this very folder (SQLite needs its locks to work there)"
        )
