"""A queue's settings, and how often and when a failed message is tried again."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tailrace.coordination.settings import from_names
from tailrace.errors import BadSetting
from tailrace.log.catalog import check_name
from tailrace.storage.tables import Item, Key

SHARDS = 24
"""Shards of a queue that is made without a number of them."""
DAY_MS = 24 * 3600 * 1000
TTL = 5.0
"""Seconds without a heartbeat after which a consumer counts as gone."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What can be set per queue."""

    attempts: int = 5
    """After so many failed attempts a message goes to the dead letters."""
    backoff: float = 1.0
    """Seconds before the second attempt, at most; they double with each one, and are drawn at random."""
    max_backoff: float = 300.0
    """Seconds before an attempt, at most."""
    order: Literal["key", "none"] = "key"
    """Whether messages of a key wait while an earlier one is tried again: "key"; or not: "none"."""
    timeout: float | None = None
    """Seconds that a handler may take; None: as long as it likes."""
    final: tuple[str, ...] = ()
    """Names of error classes that are not tried again, as in `("ValueError", "shop.errors.NoSuchOrder")`."""

    def pause_before(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait before attempt number `attempt` (the second is 2)."""
        most = min(self.max_backoff, self.backoff * 2.0 ** min(max(0, attempt - 2), 30))
        return rng.uniform(most / 2, most)

    def is_final(self, error: BaseException) -> bool:
        """Whether an error, or one of the classes it inherits from, is not worth another attempt."""
        return any(name in self.final for kind in type(error).__mro__ for name in names_of(kind))


def names_of(kind: type) -> tuple[str, str]:
    """What an error class may be called in the settings."""
    return kind.__name__, f"{kind.__module__}.{kind.__qualname__}"


def settings(given: dict[str, Any], base: Settings | None = None) -> Settings:
    """Settings from names and values; a typo or a bad value is refused with a hint."""
    known = {f.name for f in msgspec.structs.fields(Settings)}
    for name in given:
        if name not in known:
            raise BadSetting.unknown("a queue", name, known)
    if "final" in given:
        kinds = given["final"] if isinstance(given["final"], (tuple, list, set)) else (given["final"],)
        given = {**given, "final": tuple(names_of(one)[1] if isinstance(one, type) else one for one in kinds)}
    try:
        made = msgspec.convert({**msgspec.to_builtins(base or Settings()), **given}, Settings)
    except msgspec.ValidationError as error:
        raise BadSetting(f"a queue's settings: {error}") from None
    for name, lowest in (("attempts", 1), ("backoff", 0), ("max_backoff", 0), ("timeout", 0.001)):
        value = getattr(made, name)
        if value is not None and not lowest <= value < math.inf:
            raise BadSetting(f"a queue's {name} is a number from {lowest}, not {value!r}")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """How a worker works; what `queue.tail` can be given."""

    acking: bool = True
    """Whether a message is done when its handler returns; else when it is handed out (at most once)."""
    batch_size: int = 100
    """Messages of a shard that are emitted, and acknowledged, at a time; and the most of a batch handler's list."""
    threads: int = 8
    """Handlers that run at the same time."""
    batch: bool = False
    """Whether the handler gets a list of envelopes instead of one."""
    manual: bool = False
    """Whether only `envelope.ack()` acknowledges, not the handler's return."""
    name: str | None = None
    """A name for this consumer, which no other of the queue may have at the same time."""
    ttl: float = TTL
    """Seconds without a heartbeat after which this consumer takes another for dead."""
    timeout: float | None = None
    """Seconds that a handler may take; None: as the queue says."""
    grace: float = 30.0
    """Seconds that a shutdown waits for handlers that run."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Working:
        """From names and values; a typo or an unusable value is refused with a hint."""
        made = from_names(cls, "a worker", given)
        for name, low, high in (("batch_size", 1, 4096), ("threads", 1, 1024)):
            value = getattr(made, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise BadSetting(f"a worker's {name} is a number from {low} to {high}, not {value!r}")
        for name in ("ttl", "timeout", "grace"):
            value = getattr(made, name)
            if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise BadSetting(f"a worker's {name} is a number of seconds above 0, not {value!r}")
        if made.name is not None:
            check_name("consumer", made.name)
        return made


def queue_key(topic_id: str) -> Key:
    """Where a queue's settings are."""
    return Key(f"$Queue-{topic_id}")


def as_stored(made: Settings) -> str:
    """Settings as they are stored."""
    return msgspec.json.encode(made).decode()


def stored_settings(item: Item) -> Settings:
    """A queue's stored settings."""
    return msgspec.json.decode(item["settings"], type=Settings)
