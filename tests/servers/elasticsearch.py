"""Elasticsearch: one node without security, from the zip that its makers test with, on Maven Central."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers.kafka import java
from tests.servers.kept import PLACE, kept
from tests.servers.process import HOST, Missing, Server, answers, folder, free_ports, running

VERSION = "8.19.21"
ZIP = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{VERSION}:zip"
JVM = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.io.tmpdir=${ES_TMPDIR}",
)
"""A node for tests is asked little: most of its time goes into starting and compiling."""


@contextlib.contextmanager
def elasticsearch() -> Iterator[Server]:
    """A node on a free port."""
    place = _reachable(program())
    port, transport = free_ports(2)
    settings = {
        "network.host": HOST, "http.port": port, "transport.port": transport, "discovery.type": "single-node",
        "xpack.security.enabled": "false", "cluster.routing.allocation.disk.threshold_enabled": "false",
        "node.processors": 2, "indices.id_field_data.enabled": "true",
    }  # fmt: skip
    with folder(None) as home:
        shutil.copytree(place / "config", home / "config")
        settings |= {"path.data": home / "data", "path.logs": home / "logs"}
        lines = [f"{name}: {value}\n" for name, value in settings.items()]
        (home / "config" / "elasticsearch.yml").write_text("".join(lines))
        (home / "config" / "jvm.options").write_text("".join(f"{option}\n" for option in JVM))
        (home / "tmp").mkdir()
        user = _user()
        for path in (home, *home.rglob("*")) if user is not None else ():
            shutil.chown(path, user)
        env = {
            **os.environ, "ES_PATH_CONF": str(home / "config"), "ES_JAVA_HOME": str(Path(java()).resolve().parents[1]),
            "ES_TMPDIR": str(home / "tmp"), "ES_JAVA_OPTS": "", "CLI_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        }  # fmt: skip
        ready = f"http://{HOST}:{port}/_cluster/health?wait_for_status=yellow&timeout=1s"
        command, log = [*_as_user(), str(place / "bin" / "elasticsearch")], home / "server.log"
        with running(command, lambda: answers(ready), log=log, env=env, grace=60, patience=240) as pid:
            yield Server("elasticsearch", f"http://{HOST}:{port}", pid)


def program() -> Path:
    """The folder of its programs, fetched once."""
    return kept(PLACE / "elasticsearch" / VERSION, _fetch)


def _fetch(made: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing(f"no program 'mvn' to fetch {ZIP} with; `apt-get install maven` brings it")
    goal = ["dependency:copy", f"-Dartifact={ZIP}", f"-DoutputDirectory={made.parent}"]
    done = subprocess.run([maven, "-B", "-q", *goal], cwd=made.parent, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"Maven could not fetch {ZIP}: {done.stdout[-500:]}")
    with zipfile.ZipFile(made.parent / f"elasticsearch-{VERSION}.zip") as zip:
        zip.extractall(made.parent)
    (made.parent / f"elasticsearch-{VERSION}").rename(made)
    (made / "plugins").mkdir(exist_ok=True)
    for one in (made / "bin").iterdir():
        one.chmod(0o755)


def _user() -> str | None:
    """Elasticsearch refuses to run as root: then nobody does it."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("nobody").pw_name
    raise Missing("Elasticsearch does not run as root, and there is no user 'nobody' to run it as")


def _as_user() -> list[str]:
    user = _user()
    if user is None:
        return []
    entry = pwd.getpwnam(user)
    # Changing the user forgets who is to die with whom, so it is said again after it.
    again = ["setpriv", "--pdeathsig", "KILL"]
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", *again]


@functools.cache
def _reachable(program: Path) -> Path:
    """The program, where the user that runs it can read it: root's own folders (/root) are closed to others."""
    if subprocess.run([*_as_user(), "test", "-x", str(program / "bin" / "elasticsearch")]).returncode == 0:
        return program
    place = Path(tempfile.mkdtemp(prefix="tailrace-elasticsearch-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    shutil.copytree(program, place / program.name)
    return place / program.name
