"""The audit list: each action that changes how a home is, with its caller and reason.  Records that programs append are
none: the log itself keeps them.

It is kept as what operators do to pipelines is: in a topic, see `pipeline.operate.ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.pipeline.operate import ledger

if TYPE_CHECKING:
    from tailrace.console.operation import Call

HOME = "_home"
"""The list of actions that are not on one pipeline; its topic is `_home-actions`."""


class Actions:
    """Writes and reads the list."""

    async def note(self, call: Call, what: str, why: str = "", **about: Any) -> None:
        """Record an action before it is done."""
        given = {name: value for name, value in about.items() if value is not None}
        with ledger.acting(actor(call)):
            await call.served.run(ledger.note, call.served.home, HOME, what, why, **given)

    async def list(self, call: Call, pipeline: str | None = None) -> list[dict[str, Any]]:
        """What was done, oldest first."""
        return await call.served.run(ledger.notes, call.served.home, pipeline or HOME)


def actor(call: Call) -> str:
    """The caller, as the list names it."""
    return f"{call.client} over HTTP"
