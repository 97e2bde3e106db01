"""Bytes in JSON, as everywhere in tailrace: text where they are UTF-8, {"base64": "…"} where not, null for none."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tailrace.errors import BadInput


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are no text."""

    base64: bytes


Data: TypeAlias = str | Base64 | None
"""Some bytes, or none."""


def data_of(stored: bytes | None) -> Data:
    """Stored bytes for an answer."""
    if stored is None:
        return None
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return Base64(stored)


def bytes_of(given: Data) -> bytes | None:
    """The bytes that a request gives."""
    if isinstance(given, Base64):
        return given.base64
    if given is None:
        return None
    try:
        return given.encode()
    except UnicodeEncodeError:
        raise BadInput('the text is no Unicode (a lone surrogate); bytes are given as {"base64": "…"}') from None


def value_of(given: Data, json: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    """A value that is given as bytes or as JSON, which is stored as it was written."""
    if isinstance(json, msgspec.UnsetType):
        return bytes_of(given)
    if given is not None:
        raise BadInput("give either value (text or base64) or json, not both")
    return bytes(json)
