"""What the tests need and what takes long to make: made once for a checkout, before the first test.

    python -m tests.servers.prepare

Tests do without what is not there: Spark starts more slowly, and an environment is installed by the first test that
asks for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys

from tests.servers import debezium, elasticsearch, kafka, maven, opensearch
from tests.servers.environment import ROOT, environment
from tests.servers.kept import install
from tests.servers.process import Missing

SPARK_CLASSES = ROOT / ".servers" / "spark.jsa"
"""The class archive of Spark for the tests; the one in the cache of the user is left alone."""
ENVIRONMENTS = ("node", "cdk", "ministack", "bloop")
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a Java that ends before it would have compiled anything twice."""


def java_options() -> str:
    """How every Java of the tests that runs a Spark driver is started; it passes over an archive that is not there."""
    if any(ch.isspace() for ch in str(SPARK_CLASSES)):
        return SHORT_LIVED
    quiet = "-Xshare:auto -XX:+VerifySharedSpaces -Xlog:disable -Xlog:all=error:stderr"
    return f"{SHORT_LIVED} {quiet} -XX:SharedArchiveFile={SPARK_CLASSES}"


def spark_classes() -> None:
    """Make the archive of Spark's classes, unless the one for this Java and this Spark is there."""
    from tailrace.spark.runtime import class_archive
    from tailrace.spark.runtime.java import java_home

    java = java_home()
    os.environ["XDG_CACHE_HOME"] = str(SPARK_CLASSES.parent)
    class_archive.make(java)
    made = class_archive.found(java)
    if made is not None and not (SPARK_CLASSES.exists() and SPARK_CLASSES.samefile(made)):
        new = SPARK_CLASSES.with_suffix(f".{os.getpid()}")
        new.symlink_to(made)
        new.replace(SPARK_CLASSES)  # at once, for a Java that starts at this moment


def environments() -> None:
    """Install what the tests of deploy/aws and of the stream service run."""
    for name in ENVIRONMENTS:
        with contextlib.suppress(Missing):  # its tests say so
            environment(name)


def jars() -> None:
    """Fetch the servers that come as jars."""
    with contextlib.suppress(Missing):  # its tests say so
        maven.jars(f"kafka/{kafka.VERSION}", *kafka.JARS)
        maven.jars(f"opensearch/{opensearch.VERSION}", *opensearch.JARS)
        maven.jars(f"debezium/{debezium.VERSION}", *debezium.JARS)
        elasticsearch.program()


def browser() -> None:
    """Install Debian's Chromium, where this user may: the console is tested in it."""
    if not shutil.which("chromium") and not shutil.which("chromium-browser"):
        install("chromium")


def main() -> None:
    """Make all at the same time.  The archive has a process of its own, since its cache is not the one of uv."""
    command = [sys.executable, "-c", "from tests.servers.prepare import spark_classes; spark_classes()"]
    with subprocess.Popen(command):
        environments()
        jars()
        browser()


if __name__ == "__main__":
    main()
