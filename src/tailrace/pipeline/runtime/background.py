"""Background work: runs a function in a daemon thread and returns a Future."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def beside(name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run a function in a daemon thread, and return a future with its result or exception."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=call, name=f"tailrace-{name}", daemon=True).start()
    return future
