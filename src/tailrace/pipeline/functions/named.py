"""Named functions: make a function from what an author writes in Python or TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tailrace.errors import BadSetting
from tailrace.pipeline.functions.calls import batch, each
from tailrace.pipeline.functions.fields import omit, pick, rename
from tailrace.pipeline.functions.files import function_at, is_reference
from tailrace.pipeline.functions.frames import frame
from tailrace.pipeline.functions.namespaces import remap
from tailrace.pipeline.functions.opfilter import opfilter
from tailrace.pipeline.functions.pretty import pretty
from tailrace.pipeline.functions.skip import skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "omit": omit, "pick": pick, "rename": rename, "remap": remap, "pretty": pretty, "skip": skip,
    "opfilter": opfilter, "each": each, "batch": batch, "frame": frame,
}  # fmt: skip

_OF_MAPPING = ("rename", "remap")


def function(given: Any, folder: Path | None = None) -> Any:
    """Make a function from what the author wrote: a function of this package, a callable over messages,
    `file:path.py:name`, or in TOML a name with its arguments: {omit = "a"}, {pick = ["a", "b"]},
    {skip = {field = "a", operator = ">", match = 1}}."""
    if is_reference(given):
        given = function_at(given, folder)
    if getattr(given, "takes_rows", False):
        return given
    if isinstance(given, Mapping):
        return _from_table(given, folder)
    if callable(given):
        return each(given)
    raise BadSetting(
        f"a function is one of {', '.join(FUNCTIONS)}, a callable or 'file:path.py:name', not {type(given).__name__}"
    )


def _from_table(table: Mapping[str, Any], folder: Path | None) -> Any:
    if len(table) != 1:
        raise BadSetting(f"a function is a table with one name in it, such as {{omit = 'card'}}, not {len(table)}")
    ((name, given),) = table.items()
    if name not in FUNCTIONS:
        raise BadSetting.unknown("functions", name, FUNCTIONS)
    if is_reference(given):
        given = function_at(given, folder)
    try:
        if isinstance(given, Mapping) and name not in _OF_MAPPING:
            return FUNCTIONS[name](**given)
        return FUNCTIONS[name](*given) if isinstance(given, list) else FUNCTIONS[name](given)
    except TypeError as error:
        raise BadSetting(f"{name}: {error}") from None
