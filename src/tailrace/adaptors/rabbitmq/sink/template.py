"""Templates of exchanges and routing keys: {namespace}, {op}, {id} and {data.FIELD} stand for parts of a message."""

from __future__ import annotations

import re

from tailrace.adaptors.rows.message import Message
from tailrace.errors import BadSetting, Rejected

_PART = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("namespace", "op", "id")
MAX_BYTES = 255
"""AMQP's limit for a name."""


class Template:
    """A text with placeholders.  `BadSetting` for an unknown one."""

    def __init__(self, setting: str, text: str) -> None:
        self.setting, self.text = setting, text
        self.names = _PART.findall(text)
        for name in self.names:
            if name not in _KNOWN and not (name.startswith("data.") and len(name) > len("data.")):
                raise BadSetting(f"{setting}: {{{name}}} is none of {{namespace}}, {{op}}, {{id}}, {{data.FIELD}}")

    @property
    def is_fixed(self) -> bool:
        """Whether the text is the same for all messages."""
        return not self.names

    @property
    def by_row(self) -> bool:
        """Whether the text may differ between the rows of one namespace."""
        return any(name not in ("namespace", "op") for name in self.names)

    def of(self, message: Message) -> str:
        """The text for a message; `Rejected` if the message lacks a field, or the text is too long."""
        text = _PART.sub(lambda match: self._value(match[1], message), self.text)
        if len(text.encode()) > MAX_BYTES:
            raise _rejected(message, f"{self.setting} would be longer than {MAX_BYTES} bytes")
        return text

    def _value(self, name: str, message: Message) -> str:
        if name == "op":
            return message.op.name.lower()
        if name in _KNOWN:
            return str(getattr(message, name)).encode(errors="surrogateescape").decode(errors="replace")
        field = name.removeprefix("data.")
        value = message.data.get(field)
        if value is None:
            raise _rejected(message, f"it has no {field!r}, which {self.setting} is made of")
        return str(value).lower() if isinstance(value, bool) else str(value)


def _rejected(message: Message, why: str) -> Rejected:
    id = message.id.encode(errors="surrogateescape").decode(errors="replace")
    return Rejected(f"the message {id!r} of {message.namespace}: {why}", namespace=message.namespace, id=id)
