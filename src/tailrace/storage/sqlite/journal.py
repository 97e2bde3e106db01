"""Journal: checks that a database's WAL still has every acknowledged commit, before the first process opens it.

SQLite reads a WAL up to the first frame whose checksum does not fit and silently drops the rest.  That is right for a
commit torn by a power cut, but with damage in the middle it loses acknowledged commits.  Three things tell the
difference.  The shared memory file, which a killed process leaves behind, says how many frames were committed; so does
the watermark, which is there even without that file.  And a power cut tears at most the last commit, so a frame that
does not fit, with whole commits behind it, is damage.  docs/operations/scrub.md says what none of them can tell.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tailrace.errors import Damaged
from tailrace.storage.sqlite import watermark
from tailrace.storage.sqlite.watermark import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, CommittedFrames

PAGE_BYTES = 8192
"""Bytes of a page: an item of some 5 KB, as a Tip or a head is, fits into one."""

_MAGIC = 0x377F0682
_LIVE_BYTE = 128
"""The byte of the shared memory file on which every connection holds a lock."""


@dataclass(frozen=True, slots=True)
class WalIndex:
    """What a shared memory file says: how many frames are committed, of a WAL with these salts."""

    frames: int
    copied: int
    salts: bytes


def check_journal(database: Path) -> None:
    """Raise `Damaged` if opening a database would lose commits of its WAL.  Does nothing while another process has it
    open.

    Must not be called while this process has it open: closing the files would give up SQLite's locks."""
    wal, shm = (database.with_name(database.name + end) for end in ("-wal", "-shm"))
    before = _state(wal, shm)
    if before is None:
        return
    try:
        _check(wal, shm, watermark.read(database))
    except Damaged:
        if _state(wal, shm) == before:  # no process has opened it meanwhile and begun to write
            raise


def _state(wal: Path, shm: Path) -> object | None:
    """The state of both files; None if there is nothing to check, or a process has the database open."""
    try:
        if shm.exists() and _is_live(shm):
            return None
        found = [(s.st_ino, s.st_size, s.st_mtime_ns) for file in (wal, shm) if file.exists() for s in [file.stat()]]
    except FileNotFoundError:
        return None
    return found or None


def _check(wal: Path, shm: Path, noted: CommittedFrames | None) -> None:
    told = promise = _promise(shm) if shm.exists() else None
    if promise is not None and promise.frames <= promise.copied:
        promise = None  # the database has all of it
    if told is not None and noted is not None and (told.salts != noted.salts or noted.frames <= told.frames):
        noted = None  # the shared memory is newer
    size = wal.stat().st_size if wal.exists() else 0
    if size >= WAL_HEADER_BYTES:
        with wal.open("rb") as file:
            _judge(wal, file, promise, noted)
    elif promise is not None:
        raise _lost(wal, size, promise.frames)
    elif noted is not None and wal.exists():
        raise _lost(wal, size, noted.frames)


def _promise(shm: Path) -> WalIndex | None:
    """What the shared memory file says; None if it says nothing."""
    with shm.open("rb") as file:
        data = file.read(136)
    if len(data) < 136 or data[:48] != data[48:96] or data[12] != 1:
        return None
    frames, copied = struct.unpack_from("=I", data, 16)[0], struct.unpack_from("=I", data, 96)[0]
    return WalIndex(frames, copied, data[32:40])


def _is_live(shm: Path) -> bool:
    with shm.open("rb") as file:
        return _locked(file.fileno())


def _locked(descriptor: int) -> bool:
    """Whether another process has the database open; True where that cannot be known."""
    if not sys.platform.startswith("linux"):
        return True
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LIVE_BYTE, 1, 0)
    answer = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(answer[0] != fcntl.F_UNLCK)


def _judge(wal: Path, file: BinaryIO, promise: WalIndex | None, noted: CommittedFrames | None) -> None:
    header = file.read(WAL_HEADER_BYTES)
    magic, _, page, _ = struct.unpack_from(">IIII", header)
    order = "<" if magic == _MAGIC else ">"
    before = checksum(header[:24], order)
    if magic & ~1 != _MAGIC or struct.pack(">II", *before) != header[24:32]:
        if frames := promise.frames if promise is not None else _orphaned(file, header):
            raise _lost(wal, 0, frames)
        return
    salts = header[16:24]  # a file with other salts is about an earlier WAL
    whole = committed = behind = 0
    left = _frames(file, page, salts)
    for frame in left:
        if frame[8:16] != salts or _sum(frame, order, before) != frame[16:24]:
            behind = _behind(frame, left, salts, order, before)
            break
        before = struct.unpack(">II", frame[16:24])
        whole += 1
        committed = whole if _commits(frame) else committed
    at = WAL_HEADER_BYTES + whole * (FRAME_HEADER_BYTES + page)
    promised = max([p.frames for p in (promise, noted) if p is not None and p.salts == salts], default=0)
    if committed < promised:
        raise _lost(wal, at, promised - committed)
    if behind:
        raise _lost(wal, at, behind)


def _orphaned(file: BinaryIO, header: bytes) -> int:
    """How many frames a header with a wrong checksum would drop: those with its salts, or with the salts before."""
    file.seek(WAL_HEADER_BYTES)
    salts = file.read(16)[8:16]
    fits = any(struct.pack(">II", *checksum(header[:16] + salts, order)) == header[24:32] for order in "<>")
    frames = commits = 0
    for frame in _frames(file, PAGE_BYTES, salts) if header[16:24] == salts or fits else ():
        frames, commits = frames + 1, commits + _commits(frame)
    return frames if commits else 0


def _frames(file: BinaryIO, page: int, salts: bytes) -> Iterator[bytes]:
    """The frames of this WAL; the bytes after them are left over from an earlier one.  A single frame among them may
    have other salts because of damage."""
    step = FRAME_HEADER_BYTES + page
    file.seek(WAL_HEADER_BYTES)
    frame = file.read(step)
    while len(frame) == step:
        following = file.read(step)
        if salts not in (frame[8:16], following[8:16]):
            return
        yield frame
        frame = following


def _behind(wrong: bytes, following: Iterator[bytes], salts: bytes, order: str, before: tuple[int, int]) -> int:
    """How many frames, of which the first does not fit, belong to commits that must have been answered.

    Frames that fit their neighbours were written one after the other, and a power cut tears at most the last commit: so
    two commits in a row, one of which is behind the frame that does not fit, are damage.  A frame that does not even
    follow the first may be left over from a commit torn long before, of which there is only one."""
    count = commits = 0
    last = wrong
    for frame in following:
        if frame[8:16] != salts or (count and not _follows(frame, last[16:24], order)):
            break
        if not count and any(_follows(frame, sums, order) for sums in (wrong[16:24], _sum(wrong, order, before))):
            commits += _commits(wrong)
        count, commits, last = count + 1, commits + _commits(frame), frame
    return count + 1 if commits > 1 else 0


def _follows(frame: bytes, before: bytes, order: str) -> bool:
    return _sum(frame, order, struct.unpack(">II", before)) == frame[16:24]


def _commits(frame: bytes) -> bool:
    return frame[4:8] != bytes(4)


def _sum(frame: bytes, order: str, before: tuple[int, int]) -> bytes:
    return struct.pack(">II", *checksum(frame[FRAME_HEADER_BYTES:], order, checksum(frame[:8], order, before)))


def checksum(data: bytes | memoryview, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's checksum of a multiple of 8 bytes."""
    one, two = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for a, b in zip(words, words, strict=True):
        one = (one + a + two) & 0xFFFFFFFF
        two = (two + b + one) & 0xFFFFFFFF
    return one, two


def _lost(wal: Path, at: int, frames: int) -> Damaged:
    shm, mark = (wal.with_name(wal.name.removesuffix("-wal") + end) for end in ("-shm", "-mark"))
    return Damaged(
        f"{wal} is damaged from byte {at:,} on, and with it {frames} pages of commits that were acknowledged; restore "
        f"the home from a copy; to go on without them: `rm -f {shm} {mark}; truncate -s {at} {wal}`",
        where=str(wal),
        position=at,
    )
