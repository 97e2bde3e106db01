"""The audit list: each action of an operator on a home, with its caller and reason, and whether it was refused.

Records that programs append are not on it: the log itself keeps them.  Like the actions on pipelines, the list is
stored in a topic: see `pipeline.operate.ledger`.  Other requests over HTTP cannot change that topic.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tailrace.console.problems import Refused, problem_of
from tailrace.errors import TailraceError
from tailrace.pipeline.operate import ledger

if TYPE_CHECKING:
    from tailrace.console.operation import Call

HOME = "_home"
"""The name under which the ledger keeps actions that are not on a pipeline; their topic is `_home-actions`."""
SUFFIX = "-actions"
"""The end of the names of topics that the ledger keeps actions in; other topics may end so, too."""
_log = logging.getLogger("tailrace.console")


class Actions:
    """Writes and reads the audit list."""

    @asynccontextmanager
    async def noted(self, call: Call, what: str, why: str = "", **about: Any) -> AsyncIterator[None]:
        """Record an action before the block that does it; if the block raises, record the error, too.

        If the server dies within the block, the list shows the action as if it had been done."""
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

    async def refuse_own(self, call: Call, topic: str) -> None:
        """Refuse a change of a topic that is an audit list: what was done could be removed from it, or made up."""
        name = topic.removesuffix(SUFFIX)
        if name == topic:
            return
        if name == HOME or name in await call.served.run(ledger.pipelines, call.served.home):
            raise Refused(
                403, "Not allowed", f"{topic!r} is the audit list of {'the home' if name == HOME else name}: only "
                "tailrace itself writes to it; a topic of your own needs another name",
            )  # fmt: skip

    async def list(
        self, call: Call, pipeline: str | None = None, most: int | None = None, before: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the newest `most` actions before the number `before`, oldest first: on the home, or on a pipeline."""
        return await call.served.run(ledger.notes, call.served.home, pipeline or HOME, most, before)


def actor(call: Call) -> str:
    """Return the caller's name, as the audit list has it."""
    return f"{call.client} over HTTP"
