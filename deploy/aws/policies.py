"""Policies: what each role may do with a home, and nothing else.  Plain data, without the CDK.

    producer   appends to topics and to event streams
    consumer   reads topics, event streams and the feed, and keeps the places of its groups
    indexer    reads event streams, and writes the index of the feed
    operator   makes and deletes topics, does upkeep, scrubs, backs up

Everything of a home is in one table, told apart by the hash key: rules name the keys (`dynamodb:LeadingKeys`).  Keys
that begin with `$` are tailrace's own, all others are event streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

READ = ("GetItem", "Query")
WRITE = ("PutItem", "UpdateItem")
STREAM = ("DescribeStream", "GetRecords", "GetShardIterator")

Statement = dict[str, Any]


def policies(table: str, stream: str, bucket: str, prefix: str) -> Mapping[str, list[Statement]]:
    """The statements of each role, for a home of these ARNs and this prefix in the bucket."""
    chunks = f"{bucket}/{prefix}/topics/*"
    return {
        "producer": [
            _on_keys("ReadTopics", READ, table, "$Home", "$Topic-*", "$Log-*", "$Producer-*"),
            _on_keys("AppendToTopics", WRITE, table, "$Topic-*", "$Log-*", "$Chunk-*", "$Producer-*"),
            _on_events("AppendToEventStreams", (*READ, *WRITE, "ConditionCheckItem"), table),
            _allow("StoreChunks", ["s3:PutObject"], chunks),
        ],
        "consumer": [
            _on_keys("ReadTopics", READ, table, "$Home", "$Topic-*", "$Log-*", "$Chunk-*", "$Quarantine-*"),
            _on_keys("BeginGroups", ("ConditionCheckItem",), table, "$Log-*"),
            _on_keys(
                "KeepPlaces",
                (*READ, *WRITE, "DeleteItem"),
                table,
                "$Group-*",
                "$Groups",
                "$Member-*",
                "$Name-*",
            ),
            _on_keys(
                "KeepPlacesInTheFeed",
                (*READ, *WRITE, "ConditionCheckItem", "DeleteItem"),
                table,
                "$Units-*",
                "$UnitGroups",
                "$UnitMember-*",
                "$UnitName-*",
                "$ReaderCheckpoint-*",
                "$DeadLetters-*",
            ),
            _on_keys("ReadTheFeed", READ, table, "$AppendsEpoch-*", "$AppendsIndex-*", "$Indexing"),
            _on_events("ReadEventStreams", READ, table),
            _allow("ReadChunks", ["s3:GetObject"], chunks),
        ],
        "indexer": [
            _on_keys("WriteTheIndex", (*READ, *WRITE), table, "$AppendsEpoch-*", "$AppendsIndex-*", "$Indexing"),
            _on_keys("ReadWhichHomeItIs", ("GetItem",), table, "$Home"),
            _on_events("ReadEventStreams", READ, table),
        ],
        "operator": [
            _allow(
                "UseTheTable",
                [
                    f"dynamodb:{name}"
                    for name in (*READ, *WRITE, "ConditionCheckItem", "DeleteItem", "Scan", "DescribeTable")
                ],
                table,
            ),
            _allow("ReadTheStream", [f"dynamodb:{name}" for name in STREAM], stream),
            _allow("UseChunks", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], chunks),
            _allow("FindOutWhatIsThere", ["s3:GetObject"], f"{bucket}/{prefix}/home"),
            {
                **_allow("ListChunks", ["s3:ListBucket"], bucket),
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}/*"]}},
            },
        ],
    }


def _allow(name: str, actions: list[str], resource: str) -> Statement:
    return {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": resource}


def _on_keys(name: str, operations: tuple[str, ...], table: str, *keys: str) -> Statement:
    """Operations on items whose hash keys are like these."""
    rule = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(keys)}}
    return {**_allow(name, [f"dynamodb:{one}" for one in operations], table), "Condition": rule}


def _on_events(name: str, operations: tuple[str, ...], table: str) -> Statement:
    """Operations on event streams: on all keys but tailrace's own."""
    rule = {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["$*"]}}
    return {**_allow(name, [f"dynamodb:{one}" for one in operations], table), "Condition": rule}
