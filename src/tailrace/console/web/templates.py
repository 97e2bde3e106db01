"""Templates of the pages: they escape every value, and can render the live regions of a page by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tailrace._version import __version__
from tailrace.console.web import charts, formats, payload
from tailrace.console.web.page import Ask, Shown
from tailrace.console.web.visit import Visit, path_to

LIVE = "live_"
"""The beginning of the names of the blocks that change while a page is open."""
NAVIGATION = (
    ("overview", "Overview", "/"),
    ("topics", "Topics", "/topics"),
    ("groups", "Groups", "/groups"),
    ("queues", "Queues", "/queues"),
    ("events", "Event streams", "/events"),
    ("pipelines", "Pipelines", "/pipelines"),
    ("streams", "Change streams", "/streams"),
    ("home", "Home", "/home"),
)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tailrace.console.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=formats.number, rate=formats.rate, size=formats.size, span=formats.span, moment=formats.moment,
        visible=formats.visible, brief=payload.brief,
    )  # fmt: skip
    made.globals.update(
        path_to=path_to, count=formats.count, sparkline=charts.sparkline, chart=charts.chart, version=__version__,
        navigation=NAVIGATION,
    )  # fmt: skip
    made.globals["ui"] = made.get_template("ui.html").module
    return made


_templates = _environment()


def _context(visit: Visit | None, shown: Shown, notice: str) -> dict[str, Any]:
    about: dict[str, Any] = {
        "title": shown.title,
        "up": shown.up,
        "section": shown.section,
        "notice": notice,
        "visit": visit,
    }
    if visit is not None:
        about |= {
            "home": visit.served.home.url, "who": visit.who, "may": visit.may_act,
            "read_only": visit.served.gate.read_only, "pulse": visit.pulse,
        }  # fmt: skip
    return {**about, **shown.about}


def page(visit: Visit | None, shown: Shown, notice: str = "") -> str:
    """Render a whole page."""
    return _templates.get_template(shown.template).render(_context(visit, shown, notice))


def form(visit: Visit, ask: Ask) -> Shown:
    """Return the page of an action's form."""
    about = {"ask": ask, "given": visit.form, "seen": seen(visit.form) if ask.preview else ""}
    return Shown("action.html", ask.title, about, section=ask.section)


def seen(typed: Mapping[str, str]) -> str:
    """Return a short hash of all fields of a page's form but the reason: it says which input a preview was made for."""
    fields = sorted(
        (n, v.strip()) for n, v in typed.items() if n not in ("form", "preview", "seen", "why") and v.strip()
    )
    return hashlib.sha256(repr(fields).encode()).hexdigest()[:16]


def regions(visit: Visit, shown: Shown) -> Iterator[tuple[str, str]]:
    """Yields the live regions of a page: their names and their present content."""
    template = _templates.get_template(shown.template)
    context = template.new_context(_context(visit, shown, ""))
    for name, block in template.blocks.items():
        if name.startswith(LIVE):
            yield name.removeprefix(LIVE), "".join(block(context))


def fragment(template: str, **about: Any) -> str:
    """Render a piece of a page."""
    return _templates.get_template(template).render(about)
