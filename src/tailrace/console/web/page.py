"""Pages and actions: functions under a path, and the results that they return."""

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
    """A page to render: its template, the template's values, and the pages above it."""

    template: str
    title: str
    about: dict[str, Any] = field(default_factory=dict)
    up: Sequence[tuple[str, str]] = ()
    """The pages above this one: their names and paths."""
    section: str = ""
    """The entry of the navigation that the page belongs to."""
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
    """A table of what an action would do."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    summary: str = ""


@dataclass(slots=True)
class Ask:
    """The form of an action: what the action will do, the fields to fill in, and the button that does it.

    With `previews`, the form at first only has a button that shows what would happen; the button that does it comes
    with that preview."""

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
    """The result of an action that is done: the page to go to, and the notice to show there."""

    to: str
    notice: str = ""


REASON = Field("why", "Reason", hint="Kept in the audit list, with your name.", required=True)
"""The field in which actions ask for the reason."""

Result = Shown | Ask | Went
Handler = Callable[[Visit], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page under a path, or an action (`acts`): then a GET shows the form, and a POST does the action."""

    path: str
    handler: Handler
    role: Role = "viewer"
    acts: bool = False
    live: Live | None = None
    """What the page's event stream sends; by default its live regions, whenever they have changed."""


@dataclass(slots=True)
class Pages:
    """The pages of one noun.  Its methods are decorators for handlers: `@pages.page("/topics")`."""

    all: list[Page] = field(default_factory=list)

    def page(self, path: str, live: Live | None = None) -> Callable[[F], F]:
        """Register a page that changes nothing."""

        def add(handler: F) -> F:
            self.all.append(Page(path, handler, live=live))
            return handler

        return add

    def action(self, path: str) -> Callable[[F], F]:
        """Register an action, which needs the role operator: a GET shows its form, a POST does it."""

        def add(handler: F) -> F:
            self.all.append(Page(path, handler, "operator", acts=True))
            return handler

        return add
