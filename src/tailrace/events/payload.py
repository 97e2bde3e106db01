"""Payloads: the `d` and `m` of an event, and how they are encoded (`D`, `M`).

0 or absent: raw.  1: deflate (RFC 1951, no header).  2: brotli.  Payloads from 48 bytes up are encoded if that makes
them smaller.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal, TypeAlias, cast

from tailrace.errors import BadSetting, Damaged, NotInstalled, OutOfMemory, TooLarge

Compression: TypeAlias = Literal["none", "deflate", "brotli"]
RAW, DEFLATE, BROTLI = 0, 1, 2
MIN_COMPRESSED_BYTES = 48
COMPRESSIONS = ("none", "deflate", "brotli")
PIECE_BYTES = 1024 * 1024
MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
"""The most bytes of an event's data, or of its meta: an item of 400 KB could be unpacked to any number."""


def check_compression(given: str) -> Compression:
    """Refuse a compression of event payloads that is unknown or not installed."""
    if given not in COMPRESSIONS:
        raise BadSetting.unknown("the compression of an event store", str(given), COMPRESSIONS)
    if given == "brotli":
        _brotli()
    return cast(Compression, given)


def squeeze(data: bytes, how: Compression) -> tuple[int, bytes]:
    """Compress a payload: the number of the encoding, and the bytes to store."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise TooLarge(f"an event has {len(data):,} bytes of data or meta; at most {MAX_PAYLOAD_BYTES:,} are stored")
    if len(data) < MIN_COMPRESSED_BYTES or how == "none":
        return RAW, data
    smaller = zlib.compress(data, wbits=-15) if how == "deflate" else _brotli().compress(data, quality=5)
    if len(smaller) >= len(data):
        return RAW, data
    return (DEFLATE if how == "deflate" else BROTLI), smaller


def expand(encoding: int, data: bytes, stream: str, index: int) -> bytes:
    """The original bytes of a stored payload."""
    try:
        if encoding == RAW:
            return data
        if encoding == DEFLATE:
            return _inflated(data)
        if encoding == BROTLI:
            return _unbrotlied(data)
    except NotInstalled:
        raise
    except MemoryError as error:
        raise OutOfMemory(f"event {index} of stream {stream!r} needs more memory than there is to unpack it") from error
    except Exception as error:  # brotli's own error class exists only where brotli is installed
        raise Damaged(
            f"event {index} of stream {stream!r} cannot be unpacked ({error}); restore it from a backup",
            where=stream,
            position=index,
        ) from error
    raise Damaged(
        f"event {index} of stream {stream!r} has the encoding {encoding!r}, which this tailrace does not know; "
        "a newer one may: pip install -U tailrace",
        where=stream,
        position=index,
    )


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=-15)
    plain = inflater.decompress(data, MAX_PAYLOAD_BYTES + 1)
    if not inflater.eof:
        raise _unfinished(len(plain))
    return plain


def _unbrotlied(data: bytes) -> bytes:
    inflater, parts, size = _brotli().Decompressor(), list[bytes](), 0
    while size <= MAX_PAYLOAD_BYTES and not inflater.is_finished():
        parts.append(inflater.process(data, output_buffer_limit=PIECE_BYTES))
        size, data = size + len(parts[-1]), b""
        if not parts[-1]:
            break
    if not inflater.is_finished():
        raise _unfinished(size)
    return b"".join(parts)


def _unfinished(size: int) -> ValueError:
    if size > MAX_PAYLOAD_BYTES:
        return ValueError(f"it says that it has more than {MAX_PAYLOAD_BYTES:,} bytes, which no writer stores")
    return ValueError("its end is missing")


def _brotli() -> Any:
    try:
        import brotli
    except ImportError:
        raise NotInstalled("brotli is not installed: pip install 'tailrace[events]'") from None
    return brotli
