"""Offsets: what a streaming query has read of each topic, and how much of the new records it takes next. Pure.

    {"orders": {"id": "5f…", "0": 12, "1": 7}}    the next offset of each partition; the id of the topic

The end of its topics, as a query reports it, also has `behind`: how far the query is from there (see lag).
Spark compares offsets as texts, so topics and partitions are always in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, dict[str, Any]]
NOT_OFFSETS = ("id", "behind")
Spans: TypeAlias = dict[tuple[str, int], tuple[int, int]]
"""By topic and partition: the first offset and the end."""


def to_json(ids: Mapping[str, str], next: Mapping[tuple[str, int], int]) -> Json:
    """Offsets in the form that Spark stores."""
    out: Json = {}
    for topic, q in sorted(next):
        out.setdefault(topic, {"id": ids[topic]})[str(q)] = next[topic, q]
    return out


def numbers(offsets: Mapping[str, Any]) -> dict[int, int]:
    """The partitions and offsets of one topic."""
    return {int(q): n for q, n in offsets.items() if q not in NOT_OFFSETS}


def shared(spans: Spans, most: int) -> dict[tuple[str, int], int]:
    """Where the next micro-batch ends in each partition when only `most` records are taken: one from each while that is
    possible, the others in proportion to what each has."""
    waiting = {key: end - start for key, (start, end) in spans.items()}
    total = sum(waiting.values())
    if total <= most:
        return {key: end for key, (_, end) in spans.items()}
    fair = sum(n > 0 for n in waiting.values()) <= most
    taken = {key: int(fair and n > 0) for key, n in waiting.items()}
    left, rest = most - sum(taken.values()), total - sum(taken.values())
    more = {key: (n - taken[key]) * left // rest for key, n in waiting.items()}
    spare = left - sum(more.values())
    for key in sorted(waiting, key=lambda key: (-((waiting[key] - taken[key]) * left % rest), key))[:spare]:
        more[key] += 1
    return {key: spans[key][0] + taken[key] + more[key] for key in spans}
