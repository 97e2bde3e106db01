"""The contract of adaptors: what a pipeline asks of the system it reads from and of those it writes to.

An adaptor is made again wherever it is needed, on the driver and in Spark's tasks, from its settings alone, so it must
be cheap to make and connects only when first asked something.  Calls come from one thread at a time.  Rows are Arrow
record batches as `tailrace.adaptors.rows.rows` makes them, one namespace a batch.

Used from outside: adaptor, settings, reader, writer.
Read in this order: adaptor, settings, reader, writer.
"""

from tailrace.adaptors.contract.adaptor import Adaptor, End
from tailrace.adaptors.contract.reader import Changes, Namespace, Piece, Position, Reader, SourceResource
from tailrace.adaptors.contract.settings import Located, PathMark, Settings, secret
from tailrace.adaptors.contract.writer import Guarantee, Staged, Who, Writer
from tailrace.adaptors.rows.command import DROP, RENAME, TRUNCATE, Command

__all__ = [
    "DROP",
    "RENAME",
    "TRUNCATE",
    "Adaptor",
    "Changes",
    "Command",
    "End",
    "Guarantee",
    "Located",
    "Namespace",
    "PathMark",
    "Piece",
    "Position",
    "Reader",
    "Settings",
    "SourceResource",
    "Staged",
    "Who",
    "Writer",
    "secret",
]
