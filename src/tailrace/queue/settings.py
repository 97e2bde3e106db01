"""Settings of queues and workers, and the rule that says when a failed message is tried again."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tailrace.coordination.settings import from_names
from tailrace.errors import BadSetting, UnknownQueue
from tailrace.log.catalog import check_name
from tailrace.storage.tables import Item, Key

SHARDS = 24
"""Shards of a queue whose creator does not choose a number."""
DAY_MS = 24 * 3600 * 1000
TTL = 5.0
"""Seconds without a heartbeat after which other consumers take a consumer's shards."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that each queue stores."""

    attempts: int = 5
    """Failed attempts after which a message goes to the dead letters."""
    backoff: float = 1.0
    """Upper limit of the pause before the second attempt, in seconds.  It doubles with each attempt; the pause is drawn
    at random from its upper half."""
    max_backoff: float = 300.0
    """The longest pause before any attempt, in seconds."""
    order: Literal["key", "none"] = "key"
    """"key": while a message waits for another attempt, later messages with the same key wait too.  "none": they do
    not."""
    timeout: float | None = None
    """Seconds that a handler may take; None: no limit."""
    final: tuple[str, ...] = ()
    """Names of error classes after which the queue does not try a message again, as in `("ValueError",
    "shop.errors.NoSuchOrder")`."""

    def pause_before(self, attempt: int, rng: random.Random) -> float:
        """Draw the pause before attempt number `attempt` at random, in seconds.  The first retry is attempt 2."""
        most = min(self.max_backoff, self.backoff * 2.0 ** min(max(0, attempt - 2), 30))
        return rng.uniform(most / 2, most)

    def is_final(self, error: BaseException) -> bool:
        """Whether the settings name this error's class, or a class that it inherits from, as final."""
        return any(name in self.final for kind in type(error).__mro__ for name in names_of(kind))


def names_of(kind: type) -> tuple[str, str]:
    """The two names under which the settings can list an error class: short, and with its module."""
    return kind.__name__, f"{kind.__module__}.{kind.__qualname__}"


def settings(given: dict[str, Any], base: Settings | None = None) -> Settings:
    """Build settings from names and values, on top of `base`; `BadSetting`, with a hint, for an unknown name or an
    unusable value."""
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
    """The settings of one worker, which `queue.tail` takes."""

    acking: bool = True
    """Whether a message is acknowledged when its handler returns; if False, already when it is handed out (at most
    once)."""
    batch_size: int = 100
    """Messages of one shard that a consumer emits, and acknowledges, at a time; also the longest list that a batch
    handler gets."""
    threads: int = 8
    """Handlers that run at the same time."""
    batch: bool = False
    """Whether the handler gets a list of envelopes instead of one."""
    manual: bool = False
    """Whether only `envelope.ack()` acknowledges, not the handler's return."""
    name: str | None = None
    """A name for this consumer; no other living consumer of the queue may have it."""
    ttl: float = TTL
    """Seconds without a heartbeat after which this consumer takes another one for dead."""
    timeout: float | None = None
    """Seconds that a handler may take; None: as the queue's settings say."""
    grace: float = 30.0
    """Seconds for which a shutdown waits for running handlers."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Working:
        """Build worker settings from names and values; `BadSetting`, with a hint, for an unknown name or an unusable
        value."""
        made = from_names(cls, "a worker", given)
        for name, low, high in (("batch_size", 1, 4096), ("threads", 1, 1024)):
            value = getattr(made, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise BadSetting(f"a worker's {name} is a number from {low} to {high}, not {value!r}")
        for name in ("ttl", "timeout", "grace"):
            value = getattr(made, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise BadSetting(f"a worker's {name} is a number of seconds above 0, not {value!r}")
        for name in ("acking", "batch", "manual"):
            if not isinstance(value := getattr(made, name), bool):
                raise BadSetting(f"a worker's {name} is True or False, not {value!r}")
        if made.name is not None:
            check_name("consumer", made.name)
        return made


def queue_key(topic_id: str) -> Key:
    """The key of the item with a queue's settings."""
    return Key(f"$Queue-{topic_id}")


def deleted() -> UnknownQueue:
    """Make the error for a queue that was deleted after it was opened."""
    return UnknownQueue("the queue was deleted; open it again")


def as_stored(made: Settings) -> str:
    """Encode settings as JSON text for the queue's item."""
    return msgspec.json.encode(made).decode()


def stored_settings(item: Item) -> Settings:
    """Decode the settings in a queue's item."""
    return msgspec.json.decode(item["settings"], type=Settings)
