"""Randomness: random bytes for ids, fresh from the system each time.

A generator in this process would be quicker, but a machine that is copied while it runs (a snapshot of a virtual
machine, a function that starts from a snapshot) would then hand out the same ids twice, and two appends would be taken
for one. `os.urandom` releases the interpreter to other threads; where many threads append, that costs more than the
rest of making an id.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

RANDOM_BYTES = 12
_Buffer = ctypes.c_char * RANDOM_BYTES

_getrandom: Any = None
with suppress(AttributeError, OSError, TypeError):  # the system has no such call
    _getrandom = ctypes.PyDLL(None).getrandom  # a PyDLL does not release the interpreter


def random_bytes() -> bytes:
    """Twelve random bytes."""
    if _getrandom is not None:
        out = _Buffer()
        if _getrandom(out, RANDOM_BYTES, 0) == RANDOM_BYTES:
            return out.raw
    return os.urandom(RANDOM_BYTES)
