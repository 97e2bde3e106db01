"""Spark is started once both ends are in order, beside what is looked up, and what keeps it from starting is said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import tailrace
from tailrace.coordination.lease import Lease
from tailrace.errors import BadSetting, HomeError, NotReady, TailraceError, Unavailable
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition
from tailrace.pipeline.run import runner as running
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime.engine import SparkEngine
from tests.cli.runs import PROGRAM
from tests.pipeline.shop import definition, sink
from tests.servers.process import free_ports


class Never:
    """A Spark that is not to be started; that would happen in another thread."""

    def __init__(self) -> None:
        self.called = Event()

    def __call__(self) -> SparkContext:
        self.called.set()
        raise RuntimeError("Spark was started")


def from_postgres(made: Definition, **settings: Any) -> Definition:
    return replace(made, source=SourceDefinition("postgres", {"uri": "postgresql://u:p@127.0.0.1:1/d", **settings}))


def into(made: Definition, adaptor: str, **settings: Any) -> Definition:
    return replace(made, sinks=(SinkDefinition("c1", adaptor, settings),))


BAD: dict[str, tuple[Callable[[Definition, Path], Definition], type[TailraceError], str]] = {
    "unreachable source": (lambda made, _: from_postgres(made), Unavailable, "127.0.0.1:1"),
    "unset variable": (lambda made, _: from_postgres(made, uri="${NO_SUCH_NAME}"), BadSetting, "NO_SUCH_NAME"),
    "typo": (lambda made, _: from_postgres(made, slott="x"), BadSetting, "slot"),
    "unreachable sink": (
        lambda made, _: into(made, "postgres", uri="postgresql://u:p@127.0.0.1:1/d"),
        Unavailable,
        "127.0.0.1:1",
    ),
    "sink of the wrong kind": (lambda made, path: into(made, "file", path=str(path / "file")), NotReady, "is a file"),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_input_is_said_without_spark(tmp_path: Path, which: str) -> None:
    (tmp_path / "file").touch()
    spoil, kind, says = BAD[which]
    never = Never()
    with pytest.raises(kind, match=says):
        Runner(spoil(definition(tmp_path, sink(tmp_path)), tmp_path), never).run(once=True)
    assert not never.called.wait(0.1)


@pytest.mark.parametrize(
    ("adaptor", "settings", "says"),
    [
        ("file", {"path": "out", "fromat": "csv"}, "the sink 'file' has no 'fromat'; did you mean 'format'"),
        ("fiel", {"path": "out"}, "tailrace has no 'fiel'; did you mean 'file'"),
        ("file", {"path": "${NO_SUCH_NAME}"}, "NO_SUCH_NAME"),
    ],
)
def test_the_settings_of_sinks_are_looked_at_before_anything_is_touched(
    tmp_path: Path, adaptor: str, settings: dict[str, Any], says: str
) -> None:
    """Though the source cannot be reached."""
    made = into(from_postgres(definition(tmp_path, sink(tmp_path))), adaptor, **settings)
    with pytest.raises(BadSetting, match=says):
        Runner(made, Never()).run(once=True)
    assert list(tmp_path.iterdir()) == []


def test_a_namespace_that_matches_nothing_is_said(tmp_path: Path) -> None:
    made, told = definition(tmp_path, sink(tmp_path)), list[str]()
    with pytest.raises(RuntimeError, match="Spark was started"):
        Runner(replace(made, source=replace(made.source, namespace="oders")), Never(), told.append).run(once=True)
    (line,) = told
    assert line.startswith("the namespace 'oders' of the source matches nothing that is there; there are: shop.items, ")
    assert line.endswith("; what does, once it is there, is copied then")


def test_a_second_run_is_told_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And before the source is looked at: the first run holds its slot."""
    monkeypatch.setattr(running, "LEASE_WAIT", 0.2)
    made, never = from_postgres(definition(tmp_path, sink(tmp_path))), Never()
    with tailrace.open(made.home) as home:
        lease = Lease(home.store, "pipeline-shop")
        assert lease.acquire(wait=0)
        with pytest.raises(HomeError, match="running already"):
            Runner(made, never).run(once=True)
        assert not never.called.wait(0.1)
        lease.release()


def test_a_program_that_cannot_reach_its_source_starts_no_java(tmp_path: Path) -> None:
    (java := tmp_path / "java" / "bin").mkdir(parents=True)
    (java / "java").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    (java / "java").chmod(0o700)
    (java.parent / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (port,) = free_ports(1)
    (tmp_path / "shop.toml").write_text(
        f'name = "shop"\nhome = "{tmp_path}/home"\n[source]\nadaptor = "postgres"\n'
        f'uri = "postgresql://u:hidden@127.0.0.1:{port}/d"\n[[branch]]\nsave.adaptor = "stdout"\n'
    )
    done = subprocess.run(
        [PROGRAM, "run", "shop.toml", "--once"],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(java.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "hidden" not in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("tables", [(), ("shop.orders",)])
def test_a_spark_that_does_not_start_ends_the_run(tmp_path: Path, tables: tuple[str, ...]) -> None:
    """Also where there is nothing to copy, and writers alone would need it."""

    def fails() -> SparkContext:
        raise RuntimeError("no memory for Java")

    with pytest.raises(RuntimeError, match="no memory for Java"):
        Runner(definition(tmp_path, sink(tmp_path), tables=tables), fails).run()


def test_it_is_started_once_and_only_when_told() -> None:
    calls: list[int] = []

    def fails() -> SparkContext:
        calls.append(1)
        raise RuntimeError("no")

    engine = SparkEngine(fails)
    assert calls == []
    for _ in range(2):
        engine.start()
        with pytest.raises(RuntimeError, match="no"):
            _ = engine.context
    assert calls == [1]


@pytest.mark.spark
def test_one_that_is_there_is_used(spark: SparkSession) -> None:
    for given in (spark, spark.sparkContext):
        engine = SparkEngine(given)
        engine.start()
        assert engine.context is spark.sparkContext
        assert engine.parallel == 2
