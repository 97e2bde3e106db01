"""Randomness: random bytes for ids, fresh from the system each time.

A generator of our own would be quicker, but a machine that is copied while it runs (a snapshot of a virtual machine, a
function that starts from one) would then give out the same ids twice, and two appends would be taken for one.
`os.urandom` lets other threads run, and where many append that costs more than all the rest of an id.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

RANDOM_BYTES = 12
_Buffer = ctypes.c_char * RANDOM_BYTES

_getrandom: Any = None
with suppress(AttributeError, OSError, TypeError):  # where the system has no such call
    _getrandom = ctypes.PyDLL(None).getrandom  # a PyDLL keeps the interpreter to itself


def random_bytes() -> bytes:
    """Twelve random bytes."""
    if _getrandom is not None:
        out = _Buffer()
        if _getrandom(out, RANDOM_BYTES, 0) == RANDOM_BYTES:
            return out.raw
    return os.urandom(RANDOM_BYTES)
