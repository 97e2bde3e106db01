"""The contract of adaptors: what a pipeline asks of the system it reads from and of the systems it writes to.

The driver and Spark's tasks each make readers and writers of their own, from the settings alone.  So a reader or writer
must be cheap to make, and must not connect before one of its methods needs the system.  Only one thread at a time calls
it, where a method does not say otherwise.  Rows are Arrow record batches as `tailrace.adaptors.rows.rows` makes them,
one namespace in a batch.

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
