"""The archive of Java's classes: used if it is there, made by one process at a time, whole."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (
        class_archive.SWITCH_VARIABLE,
        "SPARK_SUBMIT_OPTS",
    ):  # by which the other tests' Javas use one that is there
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "tailrace"


def a_java(folder: Path, version: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return str(folder)


def whole(java: str) -> Path:
    path = class_archive.stem(java).with_name(f"{class_archive.stem(java).name}-7.jsa")
    path.write_text("classes")
    return path


def test_it_is_used_once_it_is_there(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = a_java(tmp_path / "java", "17.0.1")
    assert class_archive.used(java) == ()
    cache.mkdir()
    path = whole(java)
    assert f"-XX:SharedArchiveFile={path}" in class_archive.used(java)
    monkeypatch.setenv(class_archive.SWITCH_VARIABLE, "off")
    assert class_archive.used(java) == ()
    monkeypatch.delenv(class_archive.SWITCH_VARIABLE)
    assert class_archive.used(a_java(tmp_path / "java", "17.0.2")) == (), "another Java has another one"


def test_a_folder_that_java_would_misread_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    java = a_java(tmp_path / "java", "17.0.1")
    class_archive.stem(java).parent.mkdir(parents=True)
    whole(java)
    assert class_archive.found(java) is not None
    assert class_archive.used(java) == ()
    assert class_archive.made_later(java) is None


def test_it_is_not_made_if_there_or_unwanted(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it was made"))
    java = a_java(tmp_path / "java", "17.0.1")
    monkeypatch.setenv(class_archive.SWITCH_VARIABLE, "off")
    assert class_archive.made_later(java) is None
    monkeypatch.delenv(class_archive.SWITCH_VARIABLE)
    cache.mkdir()
    whole(java)
    assert class_archive.made_later(java) is None


def test_one_process_makes_it(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def write(half: Path) -> None:
        half.write_text("classes")
        written.append(half)

    monkeypatch.setattr(class_archive, "_write", write)
    java = a_java(tmp_path / "java", "17.0.1")
    cache.mkdir()
    stale = class_archive.stem(java).with_name(f"{class_archive.stem(java).name}-1.half")
    stale.touch()
    cut_off = class_archive.stem(java).with_name(f"{class_archive.stem(java).name}-99.jsa")
    cut_off.touch()
    assert class_archive.used(java) == ()
    with class_archive.stem(java).with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        class_archive.make(java)
        assert written == []
        assert stale.exists(), "that of the one who makes it now"
    class_archive.make(java)
    class_archive.make(java)
    assert len(written) == 1
    found = class_archive.found(java)
    assert found is not None
    assert found.read_text() == "classes"
    assert list(cache.glob("*.half")) == []
    assert not cut_off.exists()


def test_one_that_nobody_uses_any_more_goes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_write", lambda half: half.write_text("classes"))
    cache.mkdir()
    javas = [a_java(tmp_path / name, "17.0.1") for name in ("used", "unused", "new")]
    paths = [whole(java) for java in javas[:2]]
    for path in paths:
        os.utime(path, (time.time() - class_archive.SECONDS_KEPT_UNUSED - 60,) * 2)
    assert class_archive.used(javas[0])
    class_archive.make(javas[2])
    assert [class_archive.found(java) is not None for java in javas] == [True, False, True]


def test_one_that_fails_leaves_nothing_in_place(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(half: Path) -> None:
        half.write_text("cla")
        raise RuntimeError("killed")

    monkeypatch.setattr(class_archive, "_write", write)
    java = a_java(tmp_path / "java", "17.0.1")
    with pytest.raises(RuntimeError):
        class_archive.make(java)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.soak
@pytest.mark.spark
def test_a_real_one_and_a_damaged_one(tmp_path: Path) -> None:
    java = java_home()
    maker = class_archive.made_later(java)
    assert maker is not None
    assert maker.wait(class_archive.MAX_SECONDS_TO_MAKE + 60) == 0
    job = "from tailrace.spark.session import context; print(context().parallelize([1, 2]).map(str).collect())"

    def said() -> str:
        done = subprocess.run([sys.executable, "-c", job], capture_output=True, text=True, timeout=120, check=True)
        return done.stdout

    assert said() == "['1', '2']\n"
    path = class_archive.found(java)
    assert path is not None
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 4096)
    assert said() == "['1', '2']\n", "Java goes on without it, and says nothing"
    os.truncate(path, 100_000)
    assert said() == "['1', '2']\n", "it is not used"
