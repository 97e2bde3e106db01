"""Records of a broker, without one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the client of Kafka has it, with key and value as JSON unless they are bytes or None."""

    given_key: Any
    given_value: Any
    at: int = 0

    def key(self) -> bytes | None:
        return encoded(self.given_key)

    def value(self) -> bytes | None:
        return encoded(self.given_value)

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at


def encoded(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
