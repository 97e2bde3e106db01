"""Class archive: Java's classes of Spark, read and checked once and then mapped, which halves how long Spark starts.

    <cache>/spark-<key>-<size>.jsa     for one Java, one Spark and these options; made whole under another name

Java itself passes over an archive that is not for it (another version, other jars) or whose sums are wrong, so one that
is out of date costs nothing but its place; it goes when another is made and no run has used it for a month.  One that
was cut off would end Java, so its size is part of its name.  Any number of processes may map one while another is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from tailrace.errors import Unavailable
from tailrace.spark.runtime.java import cache_folder
from tailrace.storage.local.files import REAL

START_FAST_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A Java that hands out tasks gains nothing from what takes long to pay."""
NO_OUTPUT_OPTIONS = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:disable", "-Xlog:all=error:stderr")
"""What Java says about archives would be taken for the program's own words."""
SWITCH_VARIABLE = "TAILRACE_SPARK_ARCHIVE"
MAX_SECONDS_TO_MAKE = 120.0
"""Seconds that Java may take to write one."""
SECONDS_KEPT_UNUSED = 30 * 24 * 3600.0
"""Seconds after which an archive that no run has used goes."""


def stem(java: str) -> Path:
    """The path of the archive for this JAVA_HOME, without its size."""
    release = Path(java) / "release"
    told = release.read_text() if release.exists() else ""
    key = "\n".join([os.path.realpath(java), told, metadata.version("pyspark"), *START_FAST_OPTIONS])
    return cache_folder() / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def found(java: str) -> Path | None:
    """The archive for this JAVA_HOME, if a whole one exists."""
    start = stem(java)
    with contextlib.suppress(OSError):  # one that is removed at this moment, or a folder that cannot be read
        for path in start.parent.glob(f"{start.name}-*.jsa"):
            if path.name == f"{start.name}-{path.stat().st_size}.jsa":
                return path
    return None


def used(java: str) -> tuple[str, ...]:
    """The options by which Java uses the archive, if there is one."""
    path = found(java) if _wanted() else None
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used today
    return (*NO_OUTPUT_OPTIONS, f"-XX:SharedArchiveFile={path}") if path is not None and _fits(path) else ()


def made_later(java: str) -> subprocess.Popen[bytes] | None:
    """Make the archive in the background, for later runs; None if the user has switched that off."""
    if not _wanted() or found(java) is not None or not _fits(stem(java)):
        return None
    command = ["nice", "-n", "19", sys.executable, "-c", f"from {__name__} import make; make({java!r})"]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/")
    except OSError:
        return None


def _wanted() -> bool:
    return os.environ.get(SWITCH_VARIABLE) != "off"


def _fits(path: Path) -> bool:
    """Java's options are words between blanks."""
    return not any(ch.isspace() or ch in "\"'\\" for ch in str(path))


def make(java: str) -> None:
    """Make the archive, unless it exists or another process is making it."""
    start = stem(java)
    start.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with start.with_suffix(".lock").open("w") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if found(java) is not None:
            return
        for old in start.parent.glob(f"{start.name}-*"):  # of one that was killed, or was cut off
            old.unlink(missing_ok=True)
        _forget(start.parent)
        half = start.with_name(f"{start.name}-{os.getpid()}.half")
        try:
            _write(half)
            with half.open("rb") as file:
                REAL.sync(file.fileno())
            half.replace(start.with_name(f"{start.name}-{half.stat().st_size}.jsa"))
        finally:
            half.unlink(missing_ok=True)


def _forget(folder: Path) -> None:
    """Remove archives that no run uses any more: those for a Java or a Spark that is no longer installed."""
    for path in folder.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):  # another process was first
            if time.time() - path.stat().st_mtime > SECONDS_KEPT_UNUSED:
                path.unlink()


def _write(half: Path) -> None:
    """Start Spark as a run does, do a job, and have Java write down which classes that took."""
    from pyspark.sql import SparkSession

    from tailrace.spark.session import JAVA, LOGGING, context

    options = " ".join([LOGGING, *START_FAST_OPTIONS, *NO_OUTPUT_OPTIONS, f"-XX:ArchiveClassesAtExit={half}"])
    spark = context("local[2]", config={JAVA: options}, frames=True, said=subprocess.DEVNULL)
    started = spark._gateway.proc
    spark.parallelize(range(2), 2).map(str).collect()
    SparkSession(spark).range(2).selectExpr("count(*)").collect()
    spark.stop()
    started.stdin.close()
    if started.wait(MAX_SECONDS_TO_MAKE):
        raise Unavailable(f"Java ended with {started.returncode} before it had written {half}")
