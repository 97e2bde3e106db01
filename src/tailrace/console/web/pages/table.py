"""The table of all pages."""

from __future__ import annotations

from tailrace.console.web.page import Page
from tailrace.console.web.pages import (
    events,
    groups,
    handler_letters,
    home,
    messages,
    overview,
    pipeline_actions,
    pipelines,
    queues,
    records,
    streams,
    tail,
    topics,
)

NOUNS = (
    overview, topics, records, tail, groups, queues, messages, events, pipelines, pipeline_actions, streams,
    handler_letters, home,
)  # fmt: skip


def _fixed_first(page: Page) -> list[bool]:
    return [part.startswith("{") for part in page.path.split("/")]


PAGES: tuple[Page, ...] = tuple(sorted((one for noun in NOUNS for one in noun.pages.all), key=_fixed_first))
"""Every page; a path with a fixed word comes before one with a name in its place."""
