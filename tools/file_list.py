"""Writes the list of every file into docs/architecture.md, from the first sentence of each module.

python tools/file_list.py            write it
python tools/file_list.py --check    exit 1 if the page differs
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "tailrace"
HEADING = "## Every file\n"


def first_sentence(path: Path) -> str:
    """What a module says of itself, up to the end of its first sentence."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`\"])", paragraph)[0].rstrip(".:")


def packages(folder: Path) -> list[Path]:
    """A package and those within it, each before what it contains."""
    inner = sorted(path.parent for path in folder.glob("*/__init__.py"))
    return [folder, *(found for one in inner for found in packages(one))]


def listed() -> str:
    """The section of the page."""
    lines = [
        HEADING,
        "What each file says of itself, package by package; `python tools/file_list.py` writes this list.\n",
    ]
    for package in packages(SOURCE):
        files = sorted(path for path in package.glob("*.py") if path.name not in ("__init__.py", "_version.py"))
        if files:
            name = package.relative_to(SOURCE.parent).as_posix()
            lines += [f"**`{name}/`**\n", *(f"- `{path.name}`: {first_sentence(path)}" for path in files), ""]
    return "\n".join(lines)


def page() -> str:
    """The whole page as it should be."""
    return PAGE.read_text().partition(HEADING)[0].rstrip("\n") + "\n\n" + listed()


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    made = page()
    if "--check" in arguments:
        return int(made != PAGE.read_text())
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
