"""Positions: where a follower stands in the streams of its tables.

    {table: {"id": …, "stream": …, "at": …, shard: {"parent": …, "after": …, …}, …}, …}

`id` is DynamoDB's own name of the table, another one for a table that was dropped and made again; `stream` its stream's
ARN; `at` when the position was taken, by DynamoDB's clock; then each shard that is read, as `streams.token` has it.
With "uncopied" the table must be copied before it is followed.  An entry of no table, "", says that more was to come.
The pipeline stores such a position in parts, and of a change only the parts that it concerns."""

from __future__ import annotations

from typing import Any, TypeAlias

from tailrace.streams.token import JSON, VERSION

StreamPosition: TypeAlias = dict[str, Any]
"""What is stored of one table."""


def stored(id: str, token: JSON) -> StreamPosition:
    """A token, to be stored."""
    shards = {one["shard"]: {name: v for name, v in one.items() if name != "shard"} for one in token["shards"]}
    return {"id": id, "stream": token["stream"], "at": token["at"], **shards}


def token_of(table: str, position: StreamPosition) -> JSON:
    """What is stored, as a token."""
    shards = [{"shard": name, **place} for name, place in position.items() if isinstance(place, dict)]
    return {"version": VERSION, "table": table, "stream": position["stream"], "at": position["at"], "shards": shards}
