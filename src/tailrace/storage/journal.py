"""Journal: is everything still in a database's WAL that was answered, now that nobody has it open?

SQLite reads a WAL up to the first frame whose checksum does not fit and drops what follows, without a word: that is how
it ends a commit torn by a power cut, but damage in the middle would cost acknowledged commits in the same way.  Two
things tell the difference.  The shared memory file, which a killed process leaves behind, says how many frames were
committed.  And a power cut tears at most the last commit, so a frame that does not fit, with whole commits behind it,
is damage.  What neither tells is written in docs/operations/scrub.md.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Damaged

HEADER, FRAME = 32, 24
PAGE = 8192
"""Bytes of a page: an item of some 5 KB, as a Tip or a head is, fits into one."""

_MAGIC = 0x377F0682
_LIVE_BYTE = 128
"""Where every connection holds a lock on the shared memory file."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a shared memory file says: so many frames are committed, of a WAL with these salts."""

    frames: int
    copied: int
    salts: bytes


def check_journal(database: Path) -> None:
    """Raise `Damaged` if a database that nobody has open would lose commits of its WAL when it is opened.

    Must not be called while this process has it open: to close the files would give up SQLite's locks."""
    wal, shm = (database.with_name(database.name + end) for end in ("-wal", "-shm"))
    before = _state(wal, shm)
    if before is None:
        return
    try:
        _check(wal, shm)
    except Damaged:
        if _state(wal, shm) == before:  # nobody has opened it meanwhile, and begun to write
            raise


def _state(wal: Path, shm: Path) -> object | None:
    """What both files are like now; None if there is nothing to look at, or somebody has the database open."""
    try:
        if shm.exists() and _is_live(shm):
            return None
        found = [(s.st_ino, s.st_size, s.st_mtime_ns) for file in (wal, shm) if file.exists() for s in [file.stat()]]
    except FileNotFoundError:
        return None
    return found or None


def _check(wal: Path, shm: Path) -> None:
    promise = _promise(shm) if shm.exists() else None
    if promise is not None and promise.frames <= promise.copied:
        promise = None  # all of it is in the database
    size = wal.stat().st_size if wal.exists() else 0
    if size > HEADER:
        with wal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _judge(wal, memoryview(data), promise)
    elif promise is not None:
        raise _lost(wal, size, promise.frames)


def _promise(shm: Path) -> Promise | None:
    """None if it says nothing."""
    with shm.open("rb") as file:
        data = file.read(136)
    if len(data) < 136 or data[:48] != data[48:96] or data[12] != 1:
        return None
    frames, copied = struct.unpack_from("=I", data, 16)[0], struct.unpack_from("=I", data, 96)[0]
    return Promise(frames, copied, data[32:40])


def _is_live(shm: Path) -> bool:
    with shm.open("rb") as file:
        return _locked(file.fileno())


def _locked(descriptor: int) -> bool:
    """Whether another process has the database open; where that cannot be told, it is taken for granted."""
    if not sys.platform.startswith("linux"):
        return True
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LIVE_BYTE, 1, 0)
    answer = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(answer[0] != fcntl.F_UNLCK)


def _judge(wal: Path, data: memoryview, promise: Promise | None) -> None:
    try:
        magic, _, page, _ = struct.unpack_from(">IIII", data)
        order = "<" if magic == _MAGIC else ">"
        before = checksum(data[:24], order)
        if magic & ~1 != _MAGIC or struct.pack(">II", *before) != data[24:32]:
            if frames := promise.frames if promise is not None else _orphaned(data):
                raise _lost(wal, 0, frames)
            return
        salts = bytes(data[16:24])
        if promise is not None and promise.salts != salts:
            promise = None  # of a WAL that came before
        whole = committed = 0
        for number, frame in enumerate(_frames(data, page, salts)):
            if frame[8:16] != salts or _sum(frame, order, before) != frame[16:24]:
                break
            before = struct.unpack(">II", frame[16:24])
            whole = number + 1
            committed = whole if _commits(frame) else committed
        at = HEADER + whole * (FRAME + page)
        if promise is not None and committed < promise.frames:
            raise _lost(wal, at, promise.frames - committed)
        if behind := _behind(list(_frames(data, page, salts))[whole:], salts, order, before):
            raise _lost(wal, at, behind)
    finally:
        data.release()


def _orphaned(data: memoryview) -> int:
    """How many frames a header that does not fit would drop: those of its own salts, or of the ones it had."""
    page = PAGE
    salts = bytes(data[HEADER + 8 : HEADER + 16])
    frames = list(_frames(data, page, salts))
    fits = any(struct.pack(">II", *checksum(bytes(data[:16]) + salts, order)) == data[24:32] for order in "<>")
    mine = data[16:24] == salts or fits
    return len(frames) if mine and any(map(_commits, frames)) else 0


def _frames(data: memoryview, page: int, salts: bytes) -> Iterator[bytes]:
    """The frames of this WAL; what follows is left of one before.  One among them may have other salts by damage."""
    step = FRAME + page
    for at in range(HEADER, len(data) - step + 1, step):
        if salts not in (data[at + 8 : at + 16], data[at + step + 8 : at + step + 16]):
            return
        yield bytes(data[at : at + step])


def _behind(frames: list[bytes], salts: bytes, order: str, before: tuple[int, int]) -> int:
    """How many frames, of which the first does not fit, belong to commits that must have been answered.

    Frames that fit their neighbours were written one after the other, and a power cut tears at most the last commit: so
    two commits in a row, one of which is behind the frame that does not fit, are damage.  A frame that does not even
    follow the first may be left over from a commit torn long before, of which there is only one."""
    run: list[bytes] = []
    for number, frame in enumerate(frames[1:]):
        if frame[8:16] != salts or (number and not _follows(frame, run[-1][16:24], order)):
            break
        run.append(frame)
    if not run:
        return 0
    joined = any(_follows(run[0], stored, order) for stored in (frames[0][16:24], _sum(frames[0], order, before)))
    commits = sum(map(_commits, run)) + (joined and _commits(frames[0]))
    return len(run) + 1 if commits > 1 else 0


def _follows(frame: bytes, before: bytes, order: str) -> bool:
    return _sum(frame, order, struct.unpack(">II", before)) == frame[16:24]


def _commits(frame: bytes) -> bool:
    return frame[4:8] != bytes(4)


def _sum(frame: bytes, order: str, before: tuple[int, int]) -> bytes:
    return struct.pack(">II", *checksum(frame[FRAME:], order, checksum(frame[:8], order, before)))


def checksum(data: bytes | memoryview, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's, of a multiple of 8 bytes."""
    one, two = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for a, b in zip(words, words, strict=True):
        one = (one + a + two) & 0xFFFFFFFF
        two = (two + b + one) & 0xFFFFFFFF
    return one, two


def _lost(wal: Path, at: int, frames: int) -> Damaged:
    shm = wal.with_name(wal.name.removesuffix("-wal") + "-shm")
    return Damaged(
        f"{wal} is damaged from byte {at:,} on, and with it {frames} pages of commits that were acknowledged; restore "
        f"the home from a copy; to go on without them: `rm -f {shm}; truncate -s {at} {wal}`",
        where=str(wal),
        position=at,
    )
