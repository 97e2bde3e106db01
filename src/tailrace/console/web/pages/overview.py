"""The overview: what is in the home, how fast it moves, and what needs attention, with the way there."""

from __future__ import annotations

from tailrace.console.api.home import list_actions
from tailrace.console.api.pipelines import Action, ActionQuery
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.pages.concerns import concerns
from tailrace.console.web.visit import Visit

pages = Pages()
ACTIONS = 5
"""How many of the newest actions the page shows."""


@pages.page("/")
async def overview(visit: Visit) -> Shown:
    """Show the first page."""
    look = await visit.pulse.look(visit)
    busiest = sorted(look.topics, key=lambda one: visit.pulse.rate("appended", one.name) or 0.0, reverse=True)[:6]
    about = {
        "look": look,
        "busiest": busiest,
        "concerns": await concerns(visit, look),
        "actions": await _actions(visit),
    }
    return Shown("overview.html", "Overview", about, section="overview")


async def _actions(visit: Visit) -> list[Action]:
    """Return the newest actions, read once for all open pages."""
    newest = ActionQuery(limit=2 * ACTIONS)  # a refused action takes two records
    found = await visit.pulse.keep(("actions",), lambda: list_actions(visit, newest))
    return found.actions[-ACTIONS:][::-1]
