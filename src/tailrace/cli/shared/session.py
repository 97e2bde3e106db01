"""The home that a command works on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tailrace.errors import HomeError

if TYPE_CHECKING:
    from tailrace.home import Home


def is_home(folder: Path) -> bool:
    """Return whether a folder is the home of a tailrace."""
    return (folder / "tailrace.db").exists()


@contextmanager
def opened(url: str | None, *, make: bool = False, hint: str = "") -> Iterator[Home]:
    """Open a home for the length of a block.  Unless `make`, refuse a folder that is no home yet, since a typo must not
    create one; `hint` tells the user where else the home may be named."""
    from tailrace import home as homes

    url = url or homes.DEFAULT
    folder = homes.folder_of(url)
    if folder is not None and not make and not is_home(folder) and not folder.is_file():
        raise HomeError(
            f"there is no home in {folder}; `tailrace home create {folder}` makes one, --home or TAILRACE_HOME says "
            f"where yours is{hint}"
        )
    with homes.open(url) as home:
        yield home


def confirm(question: str, yes: bool) -> None:
    """Ask on stderr, unless `--yes` was given; any answer but yes aborts the command."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def note(text: str) -> None:
    """Print to stderr what the user of a command should know, and what is no result."""
    print(text, file=sys.stderr)
