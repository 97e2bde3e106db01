"""Tokens: the place of a reader in a change stream, as JSON from which another process can go on.

    {"version": 1, "table": "users", "stream": "…", "at": 1767225600,
     "shards": [{"shard": "…", "parent": "…", "after": "…"}, …]}

A token names every shard that the reader reads, with the last change of it that was delivered, and when the token was
taken, by the clock of the service.  A shard that is read to its end stays in the token until its children are known:
without it, the next reader could not tell these children from shards that were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from tailrace.errors import BadToken

VERSION = 1

JSON: TypeAlias = dict[str, Any]


class ShardPlace(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A place in one shard.

    `after` is the sequence number of the last change that was delivered or passed over; None means the beginning of the
    shard.  `since` (milliseconds since 1970, the service's clock) makes the reader pass over older changes, until it
    meets the first that is not older: in this shard and in its children.  With `latest`, `since` is when the reader
    came to the end of an open shard; the children of such a shard are read whole.
    """

    shard: str
    parent: str | None = None
    after: str | None = None
    since: int | None = None
    latest: bool = False


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """The places of a reader in all shards that it reads."""

    table: str
    stream: str
    shards: tuple[ShardPlace, ...]
    at: int
    """When the token was taken, in seconds since 1970."""
    version: int = VERSION

    def encode(self) -> JSON:
        """Return the token as a JSON object."""
        encoded: JSON = msgspec.to_builtins(self)
        return {**encoded, "shards": list(encoded["shards"])}


# Two threads that convert a struct of structs for the first time at once can end the process (msgspec 0.22): a decoder
# that is made while the module is imported has prepared the types by then.
msgspec.json.Decoder(Token)


def decode(given: Mapping[str, Any], table: str, stream: str) -> Token:
    """Decode a token; `BadToken` if it cannot be one of this table's stream."""
    try:
        token = msgspec.convert(dict(given), Token)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise BadToken(
            f"this is not a token of a change stream ({error}); save `stream.token` whole, or start at "
            '"trim_horizon" or "latest"'
        ) from None
    if token.version != VERSION:
        raise BadToken(
            f"the token has version {token.version}, this tailrace reads version {VERSION}; upgrade tailrace, or start "
            'at "trim_horizon"'
        )
    if token.table != table:
        raise BadToken(f"the token is of the table {token.table!r}, not of {table!r}")
    if token.stream != stream:
        raise BadToken(
            f"the token is of another stream of table {table!r}: the stream was switched off and on again since, or "
            'the table was made again. What happened in between is in neither stream; start at "trim_horizon" and '
            "compare with the table itself"
        )
    if len({place.shard for place in token.shards}) < len(token.shards):
        raise BadToken("the token names a shard twice; it was changed since it was saved")
    return token
