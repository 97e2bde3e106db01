"""Functions: transform the messages of a branch on their way to its writer.

A function takes rows, an Arrow record batch of one namespace, and returns none, one or several such batches.  It can be
pickled, and each branch has its own.  `each`, `batch` and `frame` wrap a user's function.

Used from outside: named, namespaces, calls, frames, files, pretty.
Read in this order: named, fields, skip, opfilter, namespaces, columns, calls, frames, files, pretty.
"""

from tailrace.pipeline.functions.calls import batch, each
from tailrace.pipeline.functions.fields import omit, pick, rename
from tailrace.pipeline.functions.frames import frame
from tailrace.pipeline.functions.named import FUNCTIONS, function
from tailrace.pipeline.functions.namespaces import destination, remap
from tailrace.pipeline.functions.opfilter import opfilter
from tailrace.pipeline.functions.pretty import pretty
from tailrace.pipeline.functions.skip import skip

__all__ = [
    "FUNCTIONS", "batch", "destination", "each", "frame", "function", "omit", "opfilter", "pick", "pretty", "remap",
    "rename", "skip",
]  # fmt: skip
