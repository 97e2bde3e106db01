"""Bells: a thread waits on one until this process rings it, or until any process writes to one of some files.

Linux reports writes to files (inotify), so a waiting thread costs nothing and wakes at once.  Without inotify a bell is
a plain event, and the waiting thread must look often.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_MODIFIED = 2
IDLE_PAUSE_SECONDS, POLL_PAUSE_SECONDS, MIN_PAUSE_SECONDS = 0.05, 0.002, 0.0005
"""Seconds between looks: while nothing is written, without inotify, and just after a write."""
EXPECTED_COMMIT_SECONDS = 0.2
"""Seconds after a write within which its commit is expected, if no second file announces the commit."""


class Bell:
    """Like `threading.Event`; `wait` also ends when one of the files is written to.  Any thread may call it; only one
    waits.

    A database writes a commit to its journal before the commit shows, and to its watermark right after."""

    def __init__(self, *files: Path) -> None:
        self._lock = threading.Lock()
        self._rung = self._closed = False
        self._stirred = 0.0
        self._event = threading.Event()
        self._watch, self._own = _watching(files)
        self._poll: select.poll | None = None
        if self._watch is not None and self._own is not None:
            self._poll = select.poll()
            for one in (self._watch, self._own):
                self._poll.register(one, select.POLLIN)

    def set(self) -> None:
        """Ring the bell: the waiting thread wakes."""
        if self._rung:
            return
        with self._lock:
            self._rung = True
            self._event.set()
            if self._own is not None and not self._closed:
                os.eventfd_write(self._own, 1)

    def is_set(self) -> bool:
        """Whether the bell has been rung since it was last cleared."""
        return self._rung

    def clear(self) -> None:
        """Make the next `wait` for the bell block."""
        with self._lock:
            self._rung = False
            self._event.clear()
            if self._own is not None and not self._closed:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._own)

    def wait(self, seconds: float) -> bool:
        """Wait until the bell is rung, a file is written to, or the time is up; returns whether it was rung."""
        if self._poll is None or self._closed or self._watch is None:
            return self._event.wait(seconds)
        if any(number == self._watch for number, _ in self._poll.poll(seconds * 1000)):
            with suppress(BlockingIOError):
                os.read(self._watch, 65536)
            self._stirred = time.monotonic()
        return self._rung

    @property
    def pause(self) -> float:
        """Seconds after which to check for a commit: the system reports a write before its commit shows."""
        if self._poll is None:
            return POLL_PAUSE_SECONDS
        since = time.monotonic() - self._stirred
        return IDLE_PAUSE_SECONDS if since > EXPECTED_COMMIT_SECONDS else max(MIN_PAUSE_SECONDS, since / 4)

    def close(self) -> None:
        """Stop watching the files; the bell can still be rung."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for one in (self._watch, self._own):
                    if one is not None:
                        os.close(one)


def _watching(files: Sequence[Path]) -> tuple[int | None, int | None]:
    """Descriptors that report writes to files, and a descriptor by which this process rings; none where the system has
    no inotify."""
    if not files or sys.platform != "linux":
        return None, None
    watch = -1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watched = watch >= 0 and [libc.inotify_add_watch(watch, os.fsencode(file), _MODIFIED) for file in files]
        if watched and watched[0] >= 0:
            return watch, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except (OSError, AttributeError):
        pass
    if watch >= 0:
        os.close(watch)
    return None, None
