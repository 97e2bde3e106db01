"""The contract of doors, for import-linter: what a package keeps to itself is not imported from outside it.

A package says in its docstring which of its modules others may import:

    Used from outside: producer, consumer.

What its `__init__` imports itself is open to all.  A package without that line keeps all of its modules to itself.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

SOURCE = Path(__file__).parent.parent / "src"
LINE = re.compile(r"Used from outside:([^.]*)\.")


def opened(package: str) -> set[str] | None:
    """The modules that a package opens to others; None for what is a module, not a package."""
    door = SOURCE.joinpath(*package.split("."), "__init__.py")
    if not door.exists():
        return None
    found = LINE.search(ast.get_docstring(ast.parse(door.read_text())) or "")
    return {name.strip() for name in found[1].split(",")} if found else set()


class DoorsContract(Contract):
    """Every import of a module from outside its package is of one that the package's door names."""

    type_name = "doors"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare the imports with the doors, and the doors with what is there."""
        broken = []
        for package in sorted(m for m in graph.modules if m.startswith("tailrace.") and opened(m) is not None):
            within = graph.find_children(package)
            open_ones = {f"{package}.{name}" for name in opened(package) or ()}
            broken += [f"{package} opens {one}, which is not there" for one in sorted(open_ones - within)]
            for module in sorted(within - open_ones):
                if opened(module) is None:
                    importers = graph.find_modules_that_directly_import(module)
                    outside = sorted(m for m in importers if m != package and not m.startswith(f"{package}."))
                    broken += [f"{one} imports {module}, which {package} keeps to itself" for one in outside]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that goes past a door."""
        metadata: dict[str, Any] = check.metadata
        for line in metadata["broken"]:
            output.print_error(line)
        output.print_error(
            "Import something that the package opens, or open it: `Used from outside:` in its docstring."
        )
