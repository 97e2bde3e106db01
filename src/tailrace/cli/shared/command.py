"""Commands: functions whose docstring becomes the help, with the examples in it kept line by line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])


ELSEWHERE = {
    "consume": ("read", "tail"), "produce": ("append",), "publish": ("append",), "cat": ("read",), "follow": ("tail",),
    "ls": ("list",), "rm": ("delete",), "remove": ("delete",), "show": ("describe",), "alter": ("set", "grow"),
    "make": ("create",), "start": ("run",), "check": ("test", "doctor"), "backup": ("copy",), "mark": ("offset",),
}  # fmt: skip
"""The names of commands in other systems, and the commands here."""


class _Flags:
    """Help in which a flag has no type: `--json`, not `--json <bool>`."""

    def get_params(self, context: Any) -> list[Any]:
        """Return the parameters; a flag has no type."""
        found: list[Any] = super().get_params(context)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return found


class CliCommand(_Flags, TyperCommand):
    """A command."""


class CommandGroup(_Flags, TyperGroup):
    """A group of commands.  If a user types the name that other systems have for a command, the error names ours."""

    def resolve_command(self, context: Any, args: list[str]) -> Any:
        """Return the command that the first word names."""
        try:
            return super().resolve_command(context, args)
        except Exception as error:
            known = [name for name in ELSEWHERE.get(args[0] if args else "", ()) if name in self.commands]
            if known and hasattr(error, "message"):
                error.message = f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, known))}?"
            raise


def group(help: str) -> typer.Typer:
    """Return a new group of commands."""
    return typer.Typer(no_args_is_help=True, help=help, cls=CommandGroup)


def command(app: typer.Typer, name: str | None = None) -> Callable[[F], F]:
    """Make a function a command of a group."""
    return lambda function: app.command(name, cls=CliCommand, help=unwrapped(function.__doc__ or ""))(function)


def in_panels(panels: Mapping[str, Sequence[str]]) -> type[CommandGroup]:
    """Return a class of groups whose help shows the commands in panels, in this order; a command in no panel is an
    error."""
    titles = {name: title for title, names in panels.items() for name in names}

    class Panels(CommandGroup):
        def list_commands(self, context: Any) -> list[str]:
            for name, found in self.commands.items():
                found.rich_help_panel = titles[name]  # type: ignore[attr-defined]
            return [name for name in titles if name in self.commands]

    return Panels


def unwrapped(doc: str) -> str:
    """Return a docstring as help for any width: each paragraph on one line, indented lines as shell commands.

    Brackets are escaped, since a docstring has no markup."""
    out = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        lines = paragraph.splitlines()
        if paragraph.startswith("    "):
            out.append("\n".join(f"$ {line.strip()}" for line in lines))
        else:
            out.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(out).replace("[", r"\[")
