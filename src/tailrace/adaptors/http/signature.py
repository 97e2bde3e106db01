"""Signatures of requests, by the specification Standard Webhooks.

    webhook-id          the request's idempotency key
    webhook-timestamp   when this attempt was made, in seconds since 1970
    webhook-signature   v1,BASE64: HMAC-SHA256 of "id.timestamp.body"; one for each secret, with a space between

A receiver refuses a timestamp far from its own clock, so nobody can replay an old request."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error

from tailrace.errors import BadSetting

PREFIX = "whsec_"


def keys_of(secret: str | None) -> tuple[bytes, ...]:
    """The keys that sign requests, from the setting `secret`; none if it is not given."""
    return tuple(_key(one) for one in (secret or "").split())


def _key(text: str) -> bytes:
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return b64decode(text.removeprefix(PREFIX), validate=True)
    except Error:
        raise BadSetting("secret: what follows whsec_ is not base64") from None


def signed(keys: tuple[bytes, ...], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three webhook headers of a request; without keys no signature."""
    headers = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
    if keys:
        content = f"{id}.{timestamp}.".encode() + body
        made = (b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
        headers["webhook-signature"] = " ".join(f"v1,{one}" for one in made)
    return headers
