"""Session: Spark with the settings that this work needs, and with the format "tailrace" registered."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tailrace.spark.format import Tailrace
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.homes import one_host, settled
from tailrace.spark.runtime.installed import check_pyspark
from tailrace.spark.runtime.java import java_home

_log = logging.getLogger("tailrace")
JAVA = "spark.driver.extraJavaOptions"
LOGGING = f"-Dlog4j2.configurationFile=file:{Path(__file__).parent / 'log4j2.properties'}"
SETTINGS: dict[str, str] = {
    # for reads with the option pushFilters
    "spark.sql.python.filterPushdown.enabled": "true",
    # TCP on loopback stalls for some 40 ms a batch
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # With a limit of bytes Spark measures a batch at each row, and each time goes through the nulls of its lists: with
    # 50,000 rows in a batch, headers that are all null took twenty times as long as everything else.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.ui.showConsoleProgress": "false",
    JAVA: LOGGING,
}
WORKER_MEMORY_SETTINGS = {
    # Each batch takes as much memory as the one before, and returning pages to the system and asking for them again is
    # a fifth of a Python worker's time.  So Arrow, like PostgreSQL's driver, takes memory from the C library, where
    # glibc keeps up to 1 GiB; 32 MiB is the largest piece that it can be set to keep.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(1024 * 1024 * 1024),
}
"""The environment of Python workers."""
ON_ONE_HOST = {
    # the default manager forks some twenty shells for each batch on a local disk
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


PROTECTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
"""For clusters that distribute a secret by themselves: tasks carry the addresses and passwords of databases."""


def warn_of_exposure(context: SparkContext) -> None:
    """Warn where every program on the network can read what tasks carry.

    A standalone cluster needs a secret of its own, so tailrace cannot switch authentication on there by itself."""
    master = str(context.master)
    open_ones = [name for name in PROTECTED if context.getConf().get(name, "false") != "true"]
    if not one_host(master) and open_ones:
        _log.warning(
            "Spark at %s runs without %s: every program on its network can read the addresses and passwords that tasks "
            "carry, and run code there. Set spark.authenticate=true, spark.authenticate.secret and "
            "spark.network.crypto.enabled=true on the master, the workers and here (--conf)",
            master,
            " and ".join(open_ones),
        )


def session(
    master: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    app: str = "tailrace",
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """A Spark session for work with topics, on all cores of this machine or on `master`.

    Jobs that name no home use `home`; `config` has Spark settings that override tailrace's."""
    builder = SparkSession.builder
    java = {JAVA: " ".join([LOGGING, *class_archive.used(java_home())])}
    for name, value in _settings(master, app, {**java, **(config or {})}).items():
        builder = builder.config(name, value)
    with _worker_environment():
        made = builder.getOrCreate()
    if _master(made):
        warn_of_exposure(made.sparkContext)
    return register(made, home=home)


def context(
    master: str | None = None,
    *,
    app: str = "tailrace",
    config: Mapping[str, Any] | None = None,
    frames: bool = False,
    said: int | IO[bytes] | None = None,
) -> SparkContext:
    """Spark for jobs that only call Python functions, unless `frames`: a session takes as long again to start. Such a
    Java only hands out tasks, so its options make it start quickly and compile little.  Its output goes to the file
    `said`; None: to the output of this process."""
    quick = () if frames else class_archive.START_FAST_OPTIONS
    java = {JAVA: " ".join([LOGGING, *quick, *class_archive.used(java_home())])}
    conf = SparkConf().setAll(list(_settings(master, app, {**java, **(config or {})}).items()))
    with _worker_environment(SPARK_LAUNCHER_OPTS=" ".join(class_archive.START_FAST_OPTIONS)):
        gateway = launch_gateway(conf, {"stdout": said, "stderr": said})
    made = SparkContext(conf=conf, gateway=gateway)
    warn_of_exposure(made)
    if frames:
        register(SparkSession(made))
    else:
        _send_package(made)
    return made


def _settings(master: str | None, app: str, config: Mapping[str, Any]) -> dict[str, str]:
    """All settings of Spark, once pyspark and Java are found."""
    check_pyspark()
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or os.environ.get("TAILRACE_SPARK_MASTER") or "local[*]"
    workers = {
        f"spark.executorEnv.{name}": os.environ.get(name, value) for name, value in WORKER_MEMORY_SETTINGS.items()
    }
    place = ON_ONE_HOST if one_host(master) else PROTECTED if master.startswith(("yarn", "k8s")) else {}
    ours = {**SETTINGS, **workers, **place}
    return {**ours, **config, "spark.master": master, "spark.app.name": app}


@contextlib.contextmanager
def _worker_environment(**more: str) -> Iterator[None]:
    """Sets the workers' environment while Java starts, and restores the former one.

    Workers of data sources inherit only Java's environment; other children of this process must not get these
    settings."""
    added = {name: value for name, value in {**WORKER_MEMORY_SETTINGS, **more}.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def register(spark: SparkSession, *, home: str | os.PathLike[str] | None = None) -> SparkSession:
    """Register the format "tailrace" in an existing session; its workers get this very tailrace (without its
    dependencies)."""
    check_pyspark(spark.version)
    master = _master(spark)
    if not master:
        spark.addArtifacts(str(_packed()), pyfile=True)
    else:
        _send_package(spark.sparkContext)
    url = settled(None if home is None else os.fspath(home))
    spark.dataSource.register(_bound(url, one_host(master)))
    return spark


def _send_package(context: SparkContext) -> None:
    """Sends this very tailrace to workers on other machines."""
    if not str(context.master).startswith("local"):
        context.addPyFile(str(_packed()))


def _master(spark: SparkSession) -> str:
    """The session's master; "" if that cannot be known, as through Spark Connect."""
    try:
        return str(spark.sparkContext.master)
    except Exception:
        return ""


def _bound(home: str | None, near: bool) -> type[Tailrace]:
    """The format with this session's defaults; it is pickled by value for other processes."""
    return type("Tailrace", (Tailrace,), {"default_home": home, "one_host": near, "__qualname__": "_bound.Tailrace"})


@functools.cache
def _packed() -> Path:
    """This package as a file that Python can import from.  Spark serves it to workers while this process lives."""
    folder = Path(__file__).parents[1]
    path = Path(tempfile.mkdtemp(prefix="tailrace-")) / "tailrace.zip"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(folder.rglob("*.py")):
            out.write(file, Path("tailrace") / file.relative_to(folder))
    return path
