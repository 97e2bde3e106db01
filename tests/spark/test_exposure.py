"""A cluster on which tasks' arguments can be read by anybody is warned of, loudly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.spark.session import PROTECTED, _settings, warn_of_exposure


def context(master: str, **settings: str) -> Any:
    return SimpleNamespace(master=master, getConf=lambda: settings)


def test_a_standalone_cluster_without_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_exposure(context("spark://host:7077"))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "Spark at spark://host:7077 runs without spark.authenticate and spark.network.crypto.enabled"
    )
    caplog.clear()
    warn_of_exposure(context("spark://host:7077", **PROTECTED))
    warn_of_exposure(context("local[2]"))
    assert not caplog.records


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host"])
def test_clusters_that_share_out_a_secret_are_protected(master: str) -> None:
    assert PROTECTED.items() <= _settings(master, "x", {}).items()
    assert _settings(master, "x", {"spark.authenticate": "false"})["spark.authenticate"] == "false", "who says so"
    assert not PROTECTED.keys() & _settings("spark://host:7077", "x", {}).keys()
