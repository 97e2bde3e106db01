"""The audit list: each action that changes how a home is, with its caller and reason, and whether it was refused.
Records that programs append are none: the log itself keeps them.

It is kept as what operators do to pipelines is: in a topic, see `pipeline.operate.ledger`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tailrace.console.problems import problem_of
from tailrace.errors import TailraceError
from tailrace.pipeline.operate import ledger

if TYPE_CHECKING:
    from tailrace.console.operation import Call

HOME = "_home"
"""The list of actions that are not on one pipeline; its topic is `_home-actions`."""
_log = logging.getLogger("tailrace.console")


class Actions:
    """Writes and reads the list."""

    @asynccontextmanager
    async def noted(self, call: Call, what: str, why: str = "", **about: Any) -> AsyncIterator[None]:
        """Record an action before the block that does it; where the block fails, record that, too.

        If the server dies within the block, the list has the action without an outcome."""
        given = {name: value for name, value in about.items() if value is not None}
        with ledger.acting(actor(call)):
            number = await call.served.run(ledger.note, call.served.home, HOME, what, why, **given)
        try:
            yield
        except Exception as error:
            try:
                told = problem_of(error).detail
                await call.served.run(ledger.note_refusal, call.served.home, HOME, number, told)
            except TailraceError as second:
                _log.warning("the audit list cannot say that %s failed: %s", what, second)
            raise

    async def list(
        self, call: Call, pipeline: str | None = None, most: int | None = None, before: int | None = None
    ) -> list[dict[str, Any]]:
        """What was done, oldest first: the newest so many, before a number."""
        return await call.served.run(ledger.notes, call.served.home, pipeline or HOME, most, before)


def actor(call: Call) -> str:
    """The caller, as the list names it."""
    return f"{call.client} over HTTP"
