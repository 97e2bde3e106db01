"""`tailrace doctor`: checks this machine and a home, and says how to mend what is wrong."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import emit, print_json

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


def doctor(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Check this machine and the home: what works, what does not, and how to mend it.

    ✓ is well, ! will do for now, ✗ must be mended, and makes the exit code 1.

    Examples:

        tailrace doctor
        tailrace doctor --home 's3://my-bucket/tailrace?table=tailrace' --json
    """
    from tailrace.cli.home.checks import findings
    from tailrace.home import DEFAULT

    found = []
    for finding in findings(home or DEFAULT):
        found.append(finding)
        if not as_json:
            _print(finding.name, finding.level, finding.found, finding.mend)
    if as_json:
        print_json([asdict(finding) for finding in found])
    if any(finding.level == "bad" for finding in found):
        raise typer.Exit(1)


def _print(name: str, level: str, found: str, mend: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    mark, colour = MARKS[level]
    emit(Text.assemble((mark, colour), " ", (f"{name:<8}", "bold"), found))
    if mend:
        emit(Padding(Text(f"→ {mend}", style=colour), (0, 0, 0, 10), expand=False))


def register(app: typer.Typer) -> None:
    """Add `tailrace doctor`."""
    command(app)(doctor)
