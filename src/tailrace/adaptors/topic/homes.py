"""Homes of topic readers and writers: their marks, and folders that can become homes."""

from __future__ import annotations

import os

from tailrace.adaptors.contract import End
from tailrace.coordination import reach_marks
from tailrace.errors import HomeError
from tailrace.home import Home, folder_of, is_there
from tailrace.home.open_homes import open_once


def check_makable(url: str) -> None:
    """Raise `HomeError` if a folder cannot become a home.  Changes nothing."""
    if (folder := folder_of(url)) is None:
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise HomeError(f"no home can be made in {folder}: {there} is no folder that this user may write into")


class HomeEnd(End):
    """A reader or writer of topics, whose place is a home."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _home(self) -> Home:
        return open_once(self._url)

    def leave_mark(self, who: str, mark: str) -> None:
        """Write a mark into the home, for processes on other hosts to find."""
        self._home.store.run(reach_marks.leave(who, mark))

    def sees_mark(self, who: str, mark: str) -> bool:
        """Whether this process sees the mark.  Does not make a folder into a home."""
        return is_there(self._url) and self._home.store.run(reach_marks.sees(who, mark))
