"""Handler settings: how a consumer of a change stream or of the feed has its records handled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tailrace.coordination import lease
from tailrace.coordination.failure import OnError
from tailrace.coordination.names import check_name
from tailrace.coordination.settings import from_names
from tailrace.errors import BadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSettings:
    """The settings that `engine.consumer` and `feed.consumer` take besides the handler."""

    on_error: OnError = "stop"
    """What happens to a record that keeps failing: "stop" (the default), "dead_letter" or "skip"."""
    attempts: int = 3
    """How often the handler may fail for a record before `on_error` decides."""
    threads: int = 4
    """How many units the handler works on at the same time."""
    commit_interval: float = 1.0
    """Seconds between commits while records keep coming."""
    max_handler_seconds: float | None = None
    """Seconds that a handler may take for one record; None: no limit.  After that `on_error` decides: with "stop"
    the consumer ends with `HandlerStuck`; else the record is passed over.  The thread of a handler that hangs is
    abandoned, an `async def` is cancelled."""
    member: str | None = None
    """A name for this member, which no other member may have at the same time; None: no name."""
    ttl: float = lease.TTL_SECONDS
    """Seconds of silence after which this member considers another one dead."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> HandlerSettings:
        """Settings from names and values; a typo or an unusable value is refused with a hint."""
        made = from_names(cls, "a consumer", given)
        if made.on_error not in get_args(OnError):
            raise BadSetting.unknown("on_error", str(made.on_error), get_args(OnError))
        for name, lowest in (("ttl", 0.001), ("commit_interval", 0.01), ("attempts", 1), ("threads", 1)):
            _check_number(name, getattr(made, name), lowest)
        if made.max_handler_seconds is not None:
            _check_number("max_handler_seconds", made.max_handler_seconds, 0.001)
        if made.member is not None:
            check_name("member", made.member)
        return made


def _check_number(name: str, value: Any, lowest: float) -> None:
    whole = name in ("attempts", "threads")
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not value >= lowest:
        raise BadSetting(f"a consumer's {name} is a {'whole ' if whole else ''}number from {lowest}, not {value!r}")
