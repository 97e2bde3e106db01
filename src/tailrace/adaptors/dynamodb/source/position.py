"""Positions: the places of a follower in the streams of its tables.

    {table: {"id": …, "stream": …, "at": …, shard: {"parent": …, "after": …, …}, …}, …}

`id` is DynamoDB's id of the table: a table that was dropped and created again has another one.  `stream` is the ARN of
its stream, and `at` the time of the position by DynamoDB's clock.  Then comes each shard that is read, in the form of
`streams.token`.  With "uncopied" the table must be copied before it is followed.  The entry "", which is of no table,
says that more changes were expected.  The pipeline stores such a position in parts, and for a change only those parts
that have changed."""

from __future__ import annotations

from typing import Any, TypeAlias

from tailrace.streams.token import JSON, VERSION

StreamPosition: TypeAlias = dict[str, Any]
"""The part of a position for one table."""


def stored(id: str, token: JSON) -> StreamPosition:
    """Make the position of a table from its id and a token of its stream."""
    shards = {one["shard"]: {name: v for name, v in one.items() if name != "shard"} for one in token["shards"]}
    return {"id": id, "stream": token["stream"], "at": token["at"], **shards}


def token_of(table: str, position: StreamPosition) -> JSON:
    """Make the token of a table's stream from the table's position."""
    shards = [{"shard": name, **place} for name, place in position.items() if isinstance(place, dict)]
    return {"version": VERSION, "table": table, "stream": position["stream"], "at": position["at"], "shards": shards}
