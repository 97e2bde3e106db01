"""The deployment: the replica set, cluster or standalone server at a uri, with a client of it and checks of it."""

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
"""How long the driver looks for a primary before it raises an error; an election takes a few seconds."""
SYSTEM = frozenset({"admin", "config", "local"})


class OperationTime(NamedTuple):
    """A moment in the oplog: seconds since 1970, and the number of the operation within that second."""

    seconds: int
    counter: int


NEVER = OperationTime(0, 0)


class Deployment:
    """One replica set, sharded cluster or standalone server.  It makes its one client at the first request.

    `grant` returns, for a user's name, the command that gives the rights that are needed."""

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
        """The hosts with their ports, and the database if the uri names one, for messages; without a password."""
        nodes = ",".join(f"{host}:{port}" if port else str(host) for host, port in self._parsed["nodelist"])
        return f"{nodes}/{self.database}" if self.database else nodes

    @property
    def user(self) -> str:
        """The user of the uri; "NAME" if the uri has none."""
        return str(self._parsed.get("username") or "NAME")

    @property
    def database(self) -> str | None:
        """The database that the uri names; None if it names none."""
        return self._parsed["database"] or None

    @property
    def client(self) -> MongoClient[Mapping[str, Any]]:
        """The driver's client, which is made at the first use."""
        if self._client is None:
            from pymongo import MongoClient

            options = {k.lower() for k in self._parsed["options"]}
            given: dict[str, Any] = {"appname": "tailrace", "tz_aware": True}
            # The server's answer to a write has ids, and an id may be a date that Python's datetime does not have.
            given["datetime_conversion"] = "DATETIME_AUTO"
            if "serverselectiontimeoutms" not in options:
                given["serverSelectionTimeoutMS"] = SELECTION_MS
            with self.guarded("connecting"):
                self._client = MongoClient(self._uri, **given)
        return self._client

    @contextlib.contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Translate the driver's errors in a block into tailrace's."""
        from bson.errors import BSONError
        from pymongo.errors import PyMongoError

        try:
            yield
        except (PyMongoError, BSONError) as error:
            raise failed(error, self.where, doing, self._grant(self.user)) from None

    def close(self) -> None:
        """Close the client; a later use makes a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- the server's description
    def hello(self) -> Mapping[str, Any]:
        """Return the primary's answer to `hello`, which describes it."""
        with self.guarded("connecting"):
            return self.client.admin.command("hello")

    def check_version(self) -> None:
        """Raise `NotReady` if the server is too old.  The request also checks the password."""
        if self.version < MIN_VERSION:
            raise NotReady(
                f"MongoDB at {self.where} is version {'.'.join(map(str, self.version))}; 5.0 and newer can be used"
            )

    @cached_property
    def version(self) -> tuple[int, ...]:
        """The server's version, as three numbers."""
        with self.guarded("asking for its version"):
            return tuple(self.client.admin.command("buildInfo")["versionArray"][:3])

    def is_replicated(self) -> bool:
        """Return whether this is a replica set or a sharded cluster: only these have an oplog and transactions."""
        said = self.hello()
        return "setName" in said or said.get("msg") == "isdbgrid"

    def check_replicated(self) -> None:
        """Raise `NotReady` for a standalone server."""
        if not self.is_replicated():
            raise NotReady(
                f"MongoDB at {self.where} is a standalone server, whose changes cannot be followed; start it with "
                "`mongod --replSet rs0`, and once: mongosh --eval 'rs.initiate()'; a set of one member will do. "
                "follow = false copies once, without that"
            )

    def identity(self) -> str | None:
        """Return the id of the replica set or cluster, which is not its name; None if the user may not ask for it."""
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
        """Return the moment of the newest operation in the oplog."""
        with self.guarded("asking for the time of its oplog"):
            said = self.client.admin.command("ping")["operationTime"]
        return OperationTime(said.time, said.inc)
