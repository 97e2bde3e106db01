"""Class archive: Spark's Java classes, read and verified once and then mapped, which halves the time that Spark takes
to start.

    <cache>/spark-<key>-<size>.jsa     for one Java, one Spark and these options; written under another name, then
    renamed

Java ignores an archive that is not for it (another version, other jars) or whose checksums are wrong, so an outdated
archive costs only disk space; it is removed when another is made and no run has used it for a month.  A truncated
archive would crash Java, so its size is part of its name.  Any number of processes may map one archive while another is
made.
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
"""A Java that only hands out tasks gains nothing from optimizations that pay off late."""
NO_OUTPUT_OPTIONS = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:disable", "-Xlog:all=error:stderr")
"""Keeps Java's remarks about archives out of the program's own output."""
SWITCH_VARIABLE = "TAILRACE_SPARK_ARCHIVE"
MAX_SECONDS_TO_MAKE = 120.0
"""Seconds that Java may take to write an archive."""
SECONDS_KEPT_UNUSED = 30 * 24 * 3600.0
"""Seconds after which an archive that no run has used is removed."""


def stem(java: str) -> Path:
    """The path of the archive for this JAVA_HOME, without its size."""
    release = Path(java) / "release"
    told = release.read_text() if release.exists() else ""
    key = "\n".join([os.path.realpath(java), told, metadata.version("pyspark"), *START_FAST_OPTIONS])
    return cache_folder() / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def found(java: str) -> Path | None:
    """The archive for this JAVA_HOME, if a whole one exists."""
    start = stem(java)
    with contextlib.suppress(OSError):  # an archive that is removed at this moment, or a folder that cannot be read
        for path in start.parent.glob(f"{start.name}-*.jsa"):
            if path.name == f"{start.name}-{path.stat().st_size}.jsa":
                return path
    return None


def used(java: str) -> tuple[str, ...]:
    """The options by which Java uses the archive, if there is one."""
    path = found(java) if _wanted() else None
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # it has been used today
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
    """Whether a path can be one of Java's options, which are words separated by blanks."""
    return not any(ch.isspace() or ch in "\"'\\" for ch in str(path))


def make(java: str) -> None:
    """Make the archive, unless it exists or another process is making it."""
    start = stem(java)
    start.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with start.with_suffix(".lock").open("w") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if found(java) is not None:
            return
        for old in start.parent.glob(f"{start.name}-*"):  # left by a process that was killed, or truncated
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
    """Start Spark as a run does, run a job, and have Java write an archive of the classes that it loaded."""
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
