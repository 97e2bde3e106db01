"""The archive: Java's classes of Spark, read and checked once and then mapped, which halves how long Spark starts.

    <cache>/spark-<key>.jsa     for one Java, one Spark and these options; made whole under another name

Java itself passes over an archive that is not for it (another version, other jars), so one that is out of date costs
nothing but its place.  Any number of processes may map one while another is put in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tailrace.errors import Unavailable
from tailrace.spark.java import cache_folder

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A Java that hands out tasks gains nothing from what takes long to pay."""
QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
"""What Java says about archives would be taken for the program's own words."""
OFF = "TAILRACE_SPARK_ARCHIVE"
LONGEST = 120.0
"""Seconds that Java may take to write one."""


def place(java: str) -> Path:
    """Where the archive for this JAVA_HOME is, or would be."""
    release = Path(java) / "release"
    told = release.read_text() if release.exists() else ""
    key = "\n".join([os.path.realpath(java), told, metadata.version("pyspark"), *QUICK])
    return cache_folder() / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def used(java: str) -> tuple[str, ...]:
    """The options by which Java uses the archive, if there is one."""
    path = place(java)
    return (*QUIET, f"-XX:SharedArchiveFile={path}") if _fits(path) and path.exists() else ()


def made_later(java: str) -> subprocess.Popen[bytes] | None:
    """Have it made beside whatever else this machine does, for the runs to come; None if that is not wanted."""
    path = place(java)
    if os.environ.get(OFF) == "off" or path.exists() or not _fits(path):
        return None
    command = ["nice", "-n", "19", sys.executable, "-c", f"from {__name__} import make; make({java!r})"]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/")
    except OSError:
        return None


def _fits(path: Path) -> bool:
    """Java's options are words between blanks."""
    return not any(ch.isspace() or ch in "\"'\\" for ch in str(path))


def make(java: str) -> None:
    """Make it, unless another process does at this moment or it is there."""
    path = place(java)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for old in path.parent.glob(f"{path.stem}-*.half"):  # of one that was killed
            old.unlink(missing_ok=True)
        if not path.exists():
            half = path.with_name(f"{path.stem}-{os.getpid()}.half")
            _write(half)
            half.replace(path)


def _write(half: Path) -> None:
    """Start Spark as a run does, do a job, and have Java write down which classes that took."""
    from pyspark.sql import SparkSession

    from tailrace.spark.session import JAVA, LOGGING, context

    options = " ".join([LOGGING, *QUICK, *QUIET, f"-XX:ArchiveClassesAtExit={half}"])
    spark = context("local[2]", config={JAVA: options}, frames=True, said=subprocess.DEVNULL)
    started = spark._gateway.proc
    spark.parallelize(range(2), 2).map(str).collect()
    SparkSession(spark).range(2).selectExpr("count(*)").collect()
    spark.stop()
    started.stdin.close()
    if started.wait(LONGEST):
        raise Unavailable(f"Java ended with {started.returncode} before it had written {half}")
