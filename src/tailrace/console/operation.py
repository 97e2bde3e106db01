"""Operations of the HTTP API: each is one method on one path, with the types of its query, body and answer.

The router, the checks and the OpenAPI document are all made from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request

from tailrace.console.limits import check_objects
from tailrace.console.problems import Refused
from tailrace.console.security import Principal, Role
from tailrace.errors import BadInput, nearest

if TYPE_CHECKING:
    from tailrace.console.open_home import OpenHome

JSON, NDJSON, EVENTS, ARROW = (
    "application/json",
    "application/x-ndjson",
    "text/event-stream",
    "application/vnd.apache.arrow.stream",
)
T = TypeVar("T")
Handler = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Handler)


@dataclass(slots=True)
class Call:
    """One admitted request: the home that it asks, its caller, and the names in its path."""

    served: OpenHome
    request: Request
    who: Principal
    path: Mapping[str, str]
    raw: bytes = b""
    """The body, before it is decoded."""
    media: str = JSON
    """The media type of the body."""

    @property
    def client(self) -> str:
        """The caller and its address, by which the server counts streams and names actors."""
        return f"{self.who.name}@{self.request.client.host if self.request.client else '?'}"

    def number(self, name: str) -> int:
        """Return a whole number in the path; raise `BadInput` for any other text."""
        if not self.path[name].isdecimal() or not self.path[name].isascii() or len(self.path[name]) > 18:
            raise BadInput(f"{name} is a whole number from 0, not {self.path[name][:40]!r}")
        return int(self.path[name])

    def chosen(self, *offered: str) -> str:
        """Return the media type of the answer, by `Accept`: the first one offered if the client accepts any."""
        wanted = [part.partition(";")[0].strip() for part in self.request.headers.get("accept", "*/*").split(",")]
        for one in wanted:
            if one in offered:
                return one
            if one in ("", "*/*", f"{offered[0].partition('/')[0]}/*"):
                return offered[0]
        raise Refused(406, "Not acceptable", f"this can be had as {', '.join(offered)}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    method: str
    path: str
    handler: Handler
    answer: Any = None
    """The type of the JSON answer; None: no content."""
    body: Any = None
    query: Any = None
    role: Role = "viewer"
    status: int = 200
    statuses: tuple[int, ...] = ()
    """Other statuses with which the same answer may come."""
    takes: tuple[str, ...] = ()
    """Media types of a body that the handler decodes itself."""
    gives: tuple[str, ...] = ()
    """Media types of the answer besides JSON."""
    numbers: tuple[str, ...] = ()
    """Names in the path that stand for whole numbers."""

    @property
    def name(self) -> str:
        """The operation's id in the OpenAPI document."""
        return self.handler.__name__

    @property
    def about(self) -> str:
        """The operation's description: its handler's docstring, on one line."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def tag(self) -> str:
        """The noun that the operation is about: the first word of its path."""
        return self.path.split("/")[1]


@dataclass(slots=True)
class Operations:
    """The operations on one noun.  Its methods are decorators for handlers: `@operations.get("/topics", answer=…)`."""

    all: list[Operation] = field(default_factory=list)

    def get(self, path: str, **about: Any) -> Callable[[F], F]:
        """Register an operation that changes nothing."""
        return self._add("GET", path, about)

    def post(self, path: str, **about: Any) -> Callable[[F], F]:
        """Register an operation that changes something; by default it needs the role operator."""
        return self._add("POST", path, {"role": "operator", **about})

    def patch(self, path: str, **about: Any) -> Callable[[F], F]:
        """Register an operation that changes some fields of something."""
        return self._add("PATCH", path, {"role": "operator", **about})

    def delete(self, path: str, **about: Any) -> Callable[[F], F]:
        """Register an operation that removes something."""
        return self._add("DELETE", path, {"role": "operator", **about})

    def _add(self, method: str, path: str, about: dict[str, Any]) -> Callable[[F], F]:
        def add(handler: F) -> F:
            self.all.append(Operation(method, path, handler, **about))
            return handler

        return add


# --- decoding ---------------------------------------------------------------------------------------------------------
def decoded(data: bytes, kind: Any) -> Any:
    """Decode the JSON of a request as a type of its operation. Raise `BadInput` that says where it does not fit, and
    suggests a name for an unknown field."""
    check_objects(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"the body does not fit: {error}{_hint(str(error), kind)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the body is no JSON: {error}") from None


def query_of(given: Mapping[str, str], kind: Any) -> Any:
    """Return the parameters behind the `?` as a type; raise `BadInput` where they do not fit.  The caller has refused
    parameters that are given twice."""
    try:
        return msgspec.convert(dict(given), type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"the query does not fit: {error}{_hint(str(error), kind)}") from None


def _hint(text: str, kind: Any) -> str:
    unknown = text.partition("unknown field `")[2].partition("`")[0]
    if not unknown:
        return ""
    names = sorted(_fields(kind, set()))
    near = nearest(unknown, names)
    return f"; did you mean {near!r}?" if near else f"; there are: {', '.join(names)}"


def _fields(kind: Any, seen: set[Any]) -> set[str]:
    """Return the names of all fields of a type and of the types within it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in seen:
            return set()
        seen.add(kind)
        found = msgspec.structs.fields(kind)
        return {f.encode_name for f in found}.union(*(_fields(f.type, seen) for f in found))
    return set().union(*(_fields(part, seen) for part in getattr(kind, "__args__", ())))
