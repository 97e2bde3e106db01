"""What the file sink says of trouble with its disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tailrace.adaptors.file.sink.disk import REAL, explained
from tailrace.errors import Broken, NotReady, TooManyFiles, Unavailable
from tailrace.storage.local.files import Files


def test_a_failed_sync_of_a_folder_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so once: a second try would succeed without the file's name."""
    (tmp_path / "old").write_text("x")

    def failing(self: Files, descriptor: int) -> None:
        raise OSError(errno.ENOTRECOVERABLE, "not written")

    monkeypatch.setattr(Files, "sync", failing)
    with pytest.raises(Broken, match="the disk failed"), explained(tmp_path):
        REAL.move(tmp_path / "old", tmp_path / "new")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EIO, Broken),
        (errno.EMFILE, TooManyFiles),
        (errno.ENOSPC, Unavailable),
        (errno.EACCES, NotReady),
        (errno.ESTALE, Unavailable),
    ],
)
def test_each_error_says_whether_waiting_helps(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind), explained(tmp_path):
        raise OSError(code, os.strerror(code))
