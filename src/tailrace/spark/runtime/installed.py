"""Installed: checks that pyspark is installed, in a version that is new enough."""

from __future__ import annotations

import importlib.metadata
import re

from tailrace.errors import NotInstalled

MIN_SPARK_VERSION = (4, 3)
"""The first version whose Python data sources can do all that tailrace's need."""


def check_pyspark(found: str | None = None) -> None:
    """Refuse a pyspark that is missing or too old; `found` is its version, for tests."""
    how = "pip install 'tailrace[spark]'"
    if found is None:
        try:
            found = importlib.metadata.version("pyspark")
        except importlib.metadata.PackageNotFoundError:
            raise NotInstalled(f"pyspark is not installed, which Spark jobs need: {how}") from None
    numbers = tuple(int(n) for n in re.findall(r"\d+", found)[:2])
    if numbers < MIN_SPARK_VERSION:
        wanted = ".".join(map(str, MIN_SPARK_VERSION))
        raise NotInstalled(f"pyspark {found} is too old: tailrace's format needs {wanted} or newer: {how}")
