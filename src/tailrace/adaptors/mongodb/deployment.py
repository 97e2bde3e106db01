"""The deployment: a replica set behind a uri, what it is, and a client of it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.adaptors.mongodb.errors import UNAUTHORIZED, code_of, failed, reading
from tailrace.errors import BadSetting, NotInstalled, NotReady

if TYPE_CHECKING:
    from pymongo import MongoClient

MIN_VERSION = (5, 0)
SELECTION_MS = 10_000
"""How long the driver looks for a primary before it gives up; an election takes a few seconds."""
SYSTEM = frozenset({"admin", "config", "local"})


class OperationTime(NamedTuple):
    """A moment in the oplog: seconds since 1970, and which operation of that second."""

    seconds: int
    counter: int


NEVER = OperationTime(0, 0)


class Deployment:
    """One replica set, cluster or server.  Connects when first asked; a client is made once for a process.

    `grant` makes the command that gives a user the rights that are needed."""

    def __init__(self, uri: str, grant: Callable[[str], str] = reading) -> None:
        if importlib.util.find_spec("pymongo") is None:
            raise NotInstalled("mongodb needs a package: pip install 'tailrace[mongodb]'")
        self._uri, self._grant = uri, grant
        self._client: MongoClient[Mapping[str, Any]] | None = None

    @cached_property
    def _parsed(self) -> dict[str, Any]:
        from pymongo.errors import ConfigurationError, InvalidURI
        from pymongo.uri_parser import parse_uri

        try:
            return dict(parse_uri(self._uri, warn=False))
        except (InvalidURI, ConfigurationError, ValueError) as error:
            said = str(error).replace(self._uri, "the uri")
            raise BadSetting(
                f"uri: {said}" if "@" not in said else "uri: not as mongodb://user:password@host:27017/shop"
            ) from None

    @property
    def where(self) -> str:
        """Host and port, as people call it; never a password."""
        nodes = ",".join(f"{host}:{port}" if port else str(host) for host, port in self._parsed["nodelist"])
        return f"{nodes}/{self.database}" if self.database else nodes

    @property
    def user(self) -> str:
        """The user that connects."""
        return str(self._parsed.get("username") or "NAME")

    @property
    def database(self) -> str | None:
        """The one database that the uri names, if it does."""
        return self._parsed["database"] or None

    @property
    def client(self) -> MongoClient[Mapping[str, Any]]:
        """The driver's client."""
        if self._client is None:
            from pymongo import MongoClient

            options = {k.lower() for k in self._parsed["options"]}
            given: dict[str, Any] = {"appname": "tailrace", "tz_aware": True}
            # The answer to a write has ids in it, and an id may be a date that Python does not have.
            given["datetime_conversion"] = "DATETIME_AUTO"
            if "serverselectiontimeoutms" not in options:
                given["serverSelectionTimeoutMS"] = SELECTION_MS
            with self.guarded("connecting"):
                self._client = MongoClient(self._uri, **given)
        return self._client

    @contextlib.contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Raise the driver's errors as tailrace's."""
        from bson.errors import BSONError
        from pymongo.errors import PyMongoError

        try:
            yield
        except (PyMongoError, BSONError) as error:
            raise failed(error, self.where, doing, self._grant(self.user)) from None

    def close(self) -> None:
        """Give up connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- what it is
    def hello(self) -> Mapping[str, Any]:
        """What the primary says of itself."""
        with self.guarded("connecting"):
            return self.client.admin.command("hello")

    def check_version(self) -> None:
        """Refuse a server that is too old; this also checks the password."""
        if self.version < MIN_VERSION:
            raise NotReady(
                f"MongoDB at {self.where} is version {'.'.join(map(str, self.version))}; 5.0 and newer can be used"
            )

    @cached_property
    def version(self) -> tuple[int, ...]:
        """The server's version."""
        with self.guarded("asking for its version"):
            return tuple(self.client.admin.command("buildInfo")["versionArray"][:3])

    def is_replicated(self) -> bool:
        """Whether it is a replica set or a sharded cluster: only these have an oplog and transactions."""
        said = self.hello()
        return "setName" in said or said.get("msg") == "isdbgrid"

    def check_replicated(self) -> None:
        """Refuse a standalone server."""
        if not self.is_replicated():
            raise NotReady(
                f"MongoDB at {self.where} is a standalone server, whose changes cannot be followed; start it with "
                "`mongod --replSet rs0`, and once: mongosh --eval 'rs.initiate()'; a set of one member will do. "
                "follow = false copies once, without that"
            )

    def identity(self) -> str | None:
        """Which replica set this is, whatever its name; None where the user may not ask."""
        from pymongo.errors import OperationFailure

        with self.guarded("asking which replica set it is"):
            try:
                if self.hello().get("msg") == "isdbgrid":
                    found = self.client.config.get_collection("version").find_one() or {}
                    return str(found.get("clusterId"))
                config = self.client.admin.command("replSetGetConfig")["config"]
            except OperationFailure as error:
                if code_of(error) == UNAUTHORIZED:
                    return None
                raise
        return str(config["settings"]["replicaSetId"])

    def now(self) -> OperationTime:
        """The newest operation of the oplog."""
        with self.guarded("asking for the time of its oplog"):
            said = self.client.admin.command("ping")["operationTime"]
        return OperationTime(said.time, said.inc)
