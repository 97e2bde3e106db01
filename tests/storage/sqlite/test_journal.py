"""What the frames of a WAL tell: damage from a commit that a power cut tore."""

from __future__ import annotations

import os
import struct

import pytest

from tailrace.storage.sqlite.journal import _behind, checksum
from tailrace.storage.sqlite.watermark import FRAME_HEADER_BYTES

SALTS, ORDER, PAGE = b"saltsalt", "<", 64
START = (7, 9)


def frames(*commits: bool, start: tuple[int, int] = START) -> list[bytes]:
    """Frames as SQLite writes them one after the other; of these, which end a commit."""
    out, before = [], start
    for commit in commits:
        head, page = struct.pack(">II", 1, int(commit)), os.urandom(PAGE)
        before = checksum(page, ORDER, checksum(head, ORDER, before))
        out.append(head + SALTS + struct.pack(">II", *before) + page)
    return out


def flipped(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def behind(some: list[bytes]) -> int:
    return _behind(some[0], iter(some[1:]), SALTS, ORDER, START)


@pytest.mark.parametrize("at", [8, 16, FRAME_HEADER_BYTES], ids=["its salts", "its checksum", "its page"])
def test_a_frame_with_a_commit_behind_it_is_damaged(at: int) -> None:
    first, *rest = frames(True, True)
    assert behind([flipped(first, at), *rest]) == 2
    first, *rest = frames(False, True, False, True)
    assert behind([flipped(first, at), *rest]) == 4


@pytest.mark.parametrize("at", [8, 16, FRAME_HEADER_BYTES], ids=["its salts", "its checksum", "its page"])
def test_the_last_commit_may_be_torn_anywhere(at: int) -> None:
    for last in frames(True), frames(False, False, True):
        assert behind([flipped(last[0], at), *last[1:]]) == 0


def test_what_a_commit_torn_long_before_has_left_behind_is_no_commit_that_was_answered() -> None:
    torn = flipped(frames(True)[0], FRAME_HEADER_BYTES)
    left = frames(False, True, start=(1, 2))
    assert behind([torn, *left]) == 0
    other = [frame[:8] + b"othersal" + frame[16:] for frame in frames(True, True, start=(1, 2))]
    assert behind([torn, *other]) == 0
    assert behind([torn]) == 0
