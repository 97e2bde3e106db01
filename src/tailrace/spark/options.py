"""Options: what a job sets by `.option(name, value)`, checked on the driver before any task runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

from tailrace.errors import BadSetting
from tailrace.log.record import milliseconds

Positive = Annotated[int, msgspec.Meta(ge=1)]
SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode"}
"""Options that Spark passes on although they are not meant for a source or sink."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to read topics; the names are those of Spark's Kafka source where they mean the same."""

    home: str | None = None
    shared_home: bool = False
    subscribe: str | None = None
    subscribe_pattern: str | None = None
    assign: str | None = None
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    max_offsets_per_trigger: Positive | None = None
    min_offsets_per_trigger: Positive | None = None
    max_trigger_delay: str = "15m"
    max_bytes_per_trigger: Positive | None = None
    min_partitions: Positive | None = None
    max_records_per_partition: Positive | None = None
    fail_on_data_loss: bool = True
    columns: str | None = None
    push_filters: bool = False


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to write into topics."""

    home: str | None = None
    shared_home: bool = False
    topic: str | None = None
    write_id: str | None = None


STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "pushFilters")
Kind = TypeVar("Kind", bound=msgspec.Struct)


def parse(given: Mapping[str, str], kind: type[Kind], *, refused: tuple[str, ...] = (), why: str = "") -> Kind:
    """Parses options from texts; an unknown name is refused with the nearest right one."""
    names = {f.encode_name.lower(): f.encode_name for f in msgspec.structs.fields(kind)}
    made = {}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        if name.lower() not in names:
            what = "writing" if kind is WriteOptions else "reading"
            raise BadSetting.unknown(f"{what} the format tailrace", name, names.values())
        made[names[name.lower()]] = text
    for name in refused:
        if name in made:
            raise BadSetting(f"the option {name!r} {why}")
    try:
        return msgspec.convert(made, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"an option of the format tailrace: {error}") from None


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def seconds(text: str) -> float:
    """The seconds of an option's duration such as 500ms, 15m, 1h."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d)\s*", text)
    if found is None:
        raise BadSetting(f"maxTriggerDelay is a number with ms, s, m, h or d, as in '15m', not {text!r}")
    return int(found[1]) * _UNITS[found[2]] / 1000


def moment(name: str, text: str) -> int:
    """The time of an option, in milliseconds since 1970: such a number, or an ISO time with its zone."""
    try:
        return milliseconds(int(text) if text.strip().isdigit() else datetime.fromisoformat(text))
    except ValueError as error:
        raise BadSetting(
            f"{name} is milliseconds since 1970, or a time as in '2026-05-01T12:00:00+00:00', not {text!r}: {error}"
        ) from None
