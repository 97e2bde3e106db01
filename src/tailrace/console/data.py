"""Bytes in JSON, as everywhere in tailrace: text if they are UTF-8, {"base64": "…"} if not, null for none."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tailrace.errors import BadInput


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not UTF-8."""

    base64: bytes


Data: TypeAlias = str | Base64 | None
"""Bytes as JSON has them, or null for none."""


def data_of(stored: bytes | None) -> Data:
    """Return stored bytes as JSON has them."""
    if stored is None:
        return None
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return Base64(stored)


def bytes_of(given: Data) -> bytes | None:
    """Return the bytes that a request gives; raise `BadInput` for text that is no Unicode."""
    if isinstance(given, Base64):
        return given.base64
    if given is None:
        return None
    try:
        return given.encode()
    except UnicodeEncodeError:
        raise BadInput('the text is no Unicode (a lone surrogate); bytes are given as {"base64": "…"}') from None


def value_of(given: Data, json: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    """Return the value that a request gives as bytes or as JSON; JSON is stored as it was written."""
    if isinstance(json, msgspec.UnsetType):
        return bytes_of(given)
    if given is not None:
        raise BadInput("give either value (text or base64) or json, not both")
    return bytes(json)
