"""Short errors: make Spark print only the sentence of tailrace's own errors, not the whole traceback in its Python
workers, twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from tailrace.errors import TailraceError

C = TypeVar("C", bound=type)


def short_errors(kind: C) -> C:
    """A class decorator: drops the tracebacks of tailrace's own errors from the methods that Spark calls.  Every other
    error keeps its traceback."""
    for name, value in list(vars(kind).items()):
        if isinstance(value, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _short(value))
    return kind


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            made = method(*args, **kwargs)
        except TailraceError as error:
            raise error.with_traceback(None) from None
        return _each(made) if isinstance(made, Iterator) else made

    return call


def _each(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except TailraceError as error:
        raise error.with_traceback(None) from None
