"""Operations: what can be asked over HTTP.  Each is one method on one path, with the types of what it takes and gives;
the router, the checks and the OpenAPI document are all made from these.
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
    """One request, once it is admitted: its caller, what it asks, and of which home."""

    served: OpenHome
    request: Request
    who: Principal
    path: Mapping[str, str]
    raw: bytes = b""
    """The body, of a request whose body is not described by a type."""
    media: str = JSON
    """The media type of the body."""

    @property
    def client(self) -> str:
        """What streams are counted by: the caller, and its address."""
        return f"{self.who.name}@{self.request.client.host if self.request.client else '?'}"

    def number(self, name: str) -> int:
        """A whole number in the path."""
        if not self.path[name].isdecimal() or not self.path[name].isascii() or len(self.path[name]) > 18:
            raise BadInput(f"{name} is a whole number from 0, not {self.path[name][:40]!r}")
        return int(self.path[name])

    def chosen(self, *offered: str) -> str:
        """The media type of the answer, by `Accept`; the first one if the client does not care."""
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
    """The type of the JSON that it gives; None: no content."""
    body: Any = None
    query: Any = None
    role: Role = "viewer"
    status: int = 200
    statuses: tuple[int, ...] = ()
    """Other statuses with which it gives the same."""
    takes: tuple[str, ...] = ()
    """Media types of a body that the handler decodes itself."""
    gives: tuple[str, ...] = ()
    """Media types that it gives besides JSON."""
    numbers: tuple[str, ...] = ()
    """Names in the path that are whole numbers."""

    @property
    def name(self) -> str:
        """What it is called in the OpenAPI document."""
        return self.handler.__name__

    @property
    def about(self) -> str:
        """What it does, in the words of its docstring."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def tag(self) -> str:
        """The noun that it is about."""
        return self.path.split("/")[1]


@dataclass(slots=True)
class Operations:
    """The operations on one noun: `@operations.get("/topics", answer=…)`."""

    all: list[Operation] = field(default_factory=list)

    def get(self, path: str, **about: Any) -> Callable[[F], F]:
        """An operation that changes nothing."""
        return self._add("GET", path, about)

    def post(self, path: str, **about: Any) -> Callable[[F], F]:
        """An operation that changes something."""
        return self._add("POST", path, {"role": "operator", **about})

    def patch(self, path: str, **about: Any) -> Callable[[F], F]:
        """An operation that changes some fields of something."""
        return self._add("PATCH", path, {"role": "operator", **about})

    def delete(self, path: str, **about: Any) -> Callable[[F], F]:
        """An operation that removes something."""
        return self._add("DELETE", path, {"role": "operator", **about})

    def _add(self, method: str, path: str, about: dict[str, Any]) -> Callable[[F], F]:
        def add(handler: F) -> F:
            self.all.append(Operation(method, path, handler, **about))
            return handler

        return add


# --- decoding ---------------------------------------------------------------------------------------------------------
def decoded(data: bytes, kind: Any) -> Any:
    """JSON of a type; what does not fit is refused with where, and with the nearest name of an unknown field."""
    check_objects(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"the body does not fit: {error}{_hint(str(error), kind)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the body is no JSON: {error}") from None


def query_of(given: Mapping[str, str], kind: Any) -> Any:
    """The parameters behind the `?`, by a type; those that are there twice are refused by the caller."""
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
    """The names of all fields that a type has, and the types in it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in seen:
            return set()
        seen.add(kind)
        found = msgspec.structs.fields(kind)
        return {f.encode_name for f in found}.union(*(_fields(f.type, seen) for f in found))
    return set().union(*(_fields(part, seen) for part in getattr(kind, "__args__", ())))
