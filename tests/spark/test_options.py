"""Options: the guide names each of them, and each is taken from its text."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tailrace.errors import BadSetting
from tailrace.spark.options import ReadOptions, WriteOptions, parse, seconds

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark.md"
KAFKAS = {
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "failOnDataLoss",
}  # fmt: skip


def names(kind: type[ReadOptions] | type[WriteOptions]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_the_guide_has_every_option() -> None:
    rows = [line for line in GUIDE.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert names(ReadOptions) <= named
    assert names(WriteOptions) - {"topic", "writeId"} <= named
    for name in ("topic", "writeId"):
        assert f'option("{name}"' in GUIDE.read_text()


def test_names_of_the_kafka_source_mean_the_same() -> None:
    assert names(ReadOptions) >= KAFKAS


def test_names_may_be_written_in_any_case_and_sparks_own_are_passed_over() -> None:
    given = {"SUBSCRIBE": "orders", "minpartitions": "7", "failOnDataLoss": "false", "checkpointLocation": "/x"}
    assert parse(given, ReadOptions) == ReadOptions(subscribe="orders", min_partitions=7, fail_on_data_loss=False)


@pytest.mark.parametrize(("text", "found"), [("500ms", 0.5), ("15m", 900), (" 2 h ", 7200), ("1d", 86400), ("3s", 3)])
def test_durations(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("name", ["startingOffset", "starting_offsets", "maxOffsetPerTrigger", "subcribe", "topic"])
def test_an_unknown_name_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(BadSetting, match=f"{name}'"):
        parse({name: "x"}, ReadOptions)
