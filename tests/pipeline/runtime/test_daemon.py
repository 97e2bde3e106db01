"""Where Spark's Python daemon looks for modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from tailrace.pipeline.runtime.daemon import without_archives

ARCHIVES = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip"]


def test_installed_modules_come_before_spark_s_archives() -> None:
    installed = str(Path(pyspark.__file__).parents[1])
    assert without_archives([*ARCHIVES, "/mine.zip", installed]) == ["/mine.zip", installed]


def test_archives_stay_where_nothing_is_installed(tmp_path: Path) -> None:
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]


def test_the_daemon_starts_no_thread() -> None:
    """It forks, and a fork has but one of them."""
    assert _said("len(os.listdir('/proc/self/task'))") == "1"


def test_a_function_may_import_after_the_fork_what_the_daemon_must_not() -> None:
    assert _said("'polars' not in sys.modules and __import__('polars').__name__") == "polars"


def test_its_workers_need_not_import_what_tasks_use() -> None:
    wanted = {
        "pyarrow.compute",
        "tailrace.pipeline.deliver.delivery",
        "tailrace.adaptors.postgres",
        "tailrace.adaptors.file",
    }
    assert _said(f"{wanted} <= set(sys.modules)") == "True"


def _said(expression: str) -> str:
    code = f"import os, sys, tailrace.pipeline.runtime.daemon as daemon; daemon.prepare(); print({expression})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
