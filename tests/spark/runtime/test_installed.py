"""Which pyspark is good enough."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

import pytest

import tailrace.spark
from tailrace.errors import NotInstalled
from tailrace.spark.runtime.installed import check_pyspark


def test_versions() -> None:
    for good in ("4.3.0", "4.10.1", "5.0.0.dev1"):
        check_pyspark(good)
    for old in ("4.2.0", "3.5.4"):
        with pytest.raises(NotInstalled, match=rf"pyspark {old} is too old: .* 4\.3 or newer: pip install"):
            check_pyspark(old)


def test_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(NotInstalled, match=r"pyspark is not installed.*tailrace\[spark\]"):
        check_pyspark()


def test_an_old_pyspark_is_refused_at_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0.1")
    with pytest.raises(NotInstalled, match=r"pyspark 4\.0\.1 is too old"):
        importlib.reload(tailrace.spark)
