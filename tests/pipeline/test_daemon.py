"""Where Spark's Python daemon looks for modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from tailrace.pipeline.daemon import without_archives

ARCHIVES = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip"]


def test_installed_modules_come_before_spark_s_archives() -> None:
    installed = str(Path(pyspark.__file__).parents[1])
    assert without_archives([*ARCHIVES, "/mine.zip", installed]) == ["/mine.zip", installed]


def test_archives_stay_where_nothing_is_installed(tmp_path: Path) -> None:
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]


def test_the_daemon_starts_no_thread() -> None:
    """It forks, and a fork has but one of them."""
    count = "import os, tailrace.pipeline.daemon; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
