"""What a page and an action are: functions under a path, and what they give."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tailrace.console.security import Role
from tailrace.console.streaming import Batch
from tailrace.console.web.visit import Visit

F = TypeVar("F", bound=Callable[..., Any])
Live = Callable[[Visit], AsyncGenerator[Batch, None]]


@dataclass(slots=True)
class Shown:
    """A page to be rendered: a template, what it is about, and the way back up."""

    template: str
    title: str
    about: dict[str, Any] = field(default_factory=dict)
    up: Sequence[tuple[str, str]] = ()
    """Pages above this one: their names and paths."""
    section: str = ""
    """The entry of the navigation that it belongs to."""
    status: int = 200


@dataclass(slots=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    hint: str = ""
    options: Sequence[tuple[str, str]] = ()
    required: bool = False


@dataclass(slots=True)
class Preview:
    """What an action would do: a table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    summary: str = ""


@dataclass(slots=True)
class Ask:
    """An action before it is done: what will happen, what has to be said, and which button does it.

    Where `previews`, the first button shows what would happen, and the one that does it comes with that."""

    title: str
    button: str
    back: str
    say: Sequence[str] = ()
    fields: Sequence[Field] = ()
    danger: bool = False
    previews: bool = False
    preview: Preview | None = None
    section: str = ""
    error: str = ""


@dataclass(slots=True)
class Went:
    """An action that is done: where to go, and what to say there."""

    to: str
    notice: str = ""


REASON = Field("why", "Reason", hint="Kept in the audit list, with your name.", required=True)
"""The field that actions ask the reason with."""

Result = Shown | Ask | Went
Handler = Callable[[Visit], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page under a path, or an action: then a GET asks and a POST does."""

    path: str
    handler: Handler
    role: Role = "viewer"
    acts: bool = False
    live: Live | None = None
    """What its event stream sends; without one, the page's live regions as they change."""


@dataclass(slots=True)
class Pages:
    """The pages of one noun: `@pages.page("/topics")`."""

    all: list[Page] = field(default_factory=list)

    def page(self, path: str, live: Live | None = None) -> Callable[[F], F]:
        """A page that changes nothing."""

        def add(handler: F) -> F:
            self.all.append(Page(path, handler, live=live))
            return handler

        return add

    def action(self, path: str) -> Callable[[F], F]:
        """A page that asks, and on a POST does something."""

        def add(handler: F) -> F:
            self.all.append(Page(path, handler, "operator", acts=True))
            return handler

        return add
