"""Tailrace: one durable, ordered log of everything that happens, on a laptop's disk or on S3 and DynamoDB.

import tailrace

with tailrace.open("./data") as home:
    orders = home.topic("orders", partitions=8)
    with orders.producer() as out:
        out.send(b"order-7", b"paid")
    for record in orders.records():
        print(record.offset, record.key, record.value)
"""

from tailrace import errors
from tailrace._version import __version__
from tailrace.errors import TailraceError
from tailrace.home import Home, open
from tailrace.log.record import Mode, Op, Record
from tailrace.log.topic import Topic

__all__ = ["Home", "Mode", "Op", "Record", "TailraceError", "Topic", "__version__", "errors", "open"]
