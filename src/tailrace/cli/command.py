"""How a function becomes a command: its docstring is the help, with the examples in it kept line by line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])


def command(app: typer.Typer, name: str | None = None) -> Callable[[F], F]:
    """Make a function a command of a group."""
    return lambda function: app.command(name, help=unwrapped(function.__doc__ or ""))(function)


def unwrapped(doc: str) -> str:
    """A docstring for any width: paragraphs on one line each, indented lines as shell commands.

    What looks like markup is not meant as such."""
    out = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        lines = paragraph.splitlines()
        if paragraph.startswith("    "):
            out.append("\n".join(f"$ {line.strip()}" for line in lines))
        else:
            out.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(out).replace("[", r"\[")
