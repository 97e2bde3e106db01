"""MariaDB, Debian's mariadb-server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.servers.kept import PLACE, install, kept
from tests.servers.mysql import PASSWORD, MySQL
from tests.servers.process import HOST, Missing, folder, free_ports, listens, running

DEBIAN = Path("/usr/sbin/mariadbd")
SETTINGS = {
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "1",
    "skip-name-resolve": "1",
    "innodb-log-file-size": "16M",
    "innodb-buffer-pool-size": "64M",
    "max-connections": "60",
}


@contextlib.contextmanager
def mariadb(
    data: Path | None = None, settings: Mapping[str, str] | None = None, port: int | None = None, server_id: int = 1
) -> Iterator[MySQL]:
    """A MariaDB on a free port whose log can be followed; as `mysql` is."""
    program, port = installed(), port or free_ports(1)[0]
    with folder(data) as home:
        cluster = home / "data"
        if not cluster.exists():
            shutil.copytree(initialised(), cluster)
        own = home / "tmp"  # a server that starts clears its folder of temporary tables
        own.mkdir(exist_ok=True)
        given = {**SETTINGS, "server-id": str(server_id), "tmpdir": str(own), **(settings or {})}
        user = ["--user=root"] if os.geteuid() == 0 else []
        command = [str(program), "--no-defaults", f"--datadir={cluster}", *user]
        command += [f"--socket={cluster}/s", f"--pid-file={cluster}/pid", f"--bind-address={HOST}", f"--port={port}"]
        command += [f"--{name}={value}" for name, value in given.items()]
        with running(command, lambda: listens(port), log=home / "server.log") as pid:
            yield MySQL("mariadb", port, pid, cluster)


def installed() -> Path:
    """The path of the server, from the system's packages if root may install them."""
    if not DEBIAN.exists() and os.geteuid() == 0:
        install("mariadb-server")
    if not DEBIAN.exists():
        raise Missing(f"no {DEBIAN}; `apt-get install mariadb-server` brings it")
    return DEBIAN


def initialised() -> Path:
    """An empty data folder whose root has a password, to be copied; made by the first call of a checkout."""
    return kept(PLACE / "mariadb" / "empty", _initialise)


def _initialise(made: Path) -> None:
    made.mkdir()
    user = ["--user=root"] if os.geteuid() == 0 else []
    options = [f"--datadir={made}", "--auth-root-authentication-method=normal", "--skip-test-db", *user]
    options += ["--innodb-log-file-size=16M"]
    done = subprocess.run(["mariadb-install-db", "--no-defaults", *options], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"MariaDB could not make its folder: {(done.stdout + done.stderr)[-1000:]}")
    script = (
        f"CREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    command = [str(installed()), "--no-defaults", f"--datadir={made}", "--bootstrap", *user]
    flushed = f"USE mysql;\nFLUSH PRIVILEGES;\n{script}"
    done = subprocess.run(command, input=flushed, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"MariaDB could not make its user: {done.stderr[-1000:]}")
