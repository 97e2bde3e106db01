"""Maven: jars by their coordinates, fetched once and kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.servers.kept import PLACE, kept
from tests.servers.process import Missing

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>tailrace</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars(name: str, *coordinates: str) -> Path:
    """The folder with some jars (`group:artifact:version`) and all they need; `name` is where it is kept."""
    return kept(PLACE / name / "libs", lambda made: _fetch(made, coordinates))


def _fetch(made: Path, coordinates: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing(f"no program 'mvn' to fetch {', '.join(coordinates)} with; `apt-get install maven` brings it")
    place = made.parent
    (place / "pom.xml").write_text(POM.format("".join(DEPENDENCY.format(*c.split(":")) for c in coordinates)))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={made}"]
    done = subprocess.run([maven, "-B", "-q", *goal], cwd=place, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"Maven could not fetch {', '.join(coordinates)}: {done.stdout[-500:]}")
