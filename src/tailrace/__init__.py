"""Tailrace: one durable, ordered log of everything that happens, on a laptop's disk or on S3 and DynamoDB.

import tailrace

with tailrace.open("./data") as home:
    orders = home.topic("orders", partitions=8)
    with orders.producer() as out:
        out.send(b"order-7", b"paid")
    for record in orders.records():
        print(record.offset, record.key, record.value)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace import errors
from tailrace._version import __version__
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.home import Home, open
    from tailrace.log.record import Mode, Op, Record
    from tailrace.log.topic import Topic
    from tailrace.pipeline.define.builder import pipeline

__all__ = ["Home", "Mode", "Op", "Record", "TailraceError", "Topic", "__version__", "errors", "open", "pipeline"]

_FROM = {
    "Home": "tailrace.home",
    "open": "tailrace.home",
    "Mode": "tailrace.log.record",
    "Op": "tailrace.log.record",
    "Record": "tailrace.log.record",
    "Topic": "tailrace.log.topic",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: Arrow takes a while, and the command line does not always need it."""
    if name == "pipeline":  # a package that can be called
        return import_module("tailrace.pipeline")
    if name not in _FROM:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_FROM[name]), name)
    return value
