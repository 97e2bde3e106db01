"""The pages in a real browser: live, by hand, with hostile records, dark, on a narrow screen, and by axe-core."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.home import Home
from tests.conftest import NONE
from tests.console.serving import OPERATOR
from tests.console.web.conftest import Visitor
from tests.console.web.test_pages import PAGES
from tests.servers import axe
from tests.servers.process import Missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.server
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
SOME = (
    "/", "/topics", "/topics/orders", "/topics/orders/records?q=hurt", "/topics/orders/records/0/2",
    "/topics/orders/delete", "/groups/billing/orders", "/queues/mails", "/queues/mails/dead", "/events", "/home",
)  # fmt: skip
"""Pages that have, between them, every colour and every part."""


class Tab:
    """A page of the site in a browser, and everything that it complained of."""

    def __init__(self, page: Page, site: Visitor) -> None:
        self.page, self.site, self.faults = page, site, list[str]()
        page.set_default_timeout(20_000)
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def open(self, path: str) -> None:
        """Go there."""
        answer = self.page.goto(f"{self.site.origin}{path}")
        assert answer is not None
        assert answer.status == 200, path


@pytest.fixture
def tab(chromium: Browser, site: Visitor, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab that has come in by the address with the token."""
    look: dict[str, Any] = LOOKS[getattr(request, "param", "light")]
    with chromium.new_context(locale="en-GB", timezone_id="Asia/Kolkata", **look) as context:
        made = Tab(context.new_page(), site)
        made.open(f"/?token={OPERATOR}")
        yield made
        assert made.faults == []
        assert made.page.evaluate("window.hurt") is None


def test_the_overview_is_live(tab: Tab, filled: Home) -> None:
    assert tab.page.url == f"{tab.site.origin}/"  # the token is gone from the address
    stat = tab.page.locator(".stat", has_text="Records appended").locator("dd")
    before = stat.inner_text()
    filled.topic("orders").append([(b"k", b"v")] * 1000)
    changed = "b => !document.body.innerText.includes(`appended\\n${b}\\n`)"
    tab.page.wait_for_function(changed, arg=before, timeout=100_000)  # after a slow look the next is a minute later
    assert stat.inner_text().startswith("1,0")


def test_what_changes_while_it_is_selected_is_shown_later(tab: Tab, filled: Home) -> None:
    tab.open("/topics/orders")
    page, total = tab.page, tab.page.locator('[data-live="stats"] .stat', has_text="Appended ever").locator("dd")
    ends = page.locator('[data-live="partitions"]')
    page.evaluate("getSelection().selectAllChildren(document.querySelector('[data-live=partitions] table'))")
    shown = ends.inner_text()
    filled.topic("orders").append([(b"k", b"v")] * 1000)
    page.wait_for_function("() => document.querySelector('[data-live=stats]').innerText.includes('1,005')")
    page.wait_for_timeout(200)
    assert (total.inner_text(), ends.inner_text()) == ("1,005", shown)
    page.evaluate("getSelection().removeAllRanges()")
    page.wait_for_function("t => document.querySelector('[data-live=partitions]').innerText !== t", arg=shown)


def test_a_page_says_that_its_token_is_no_longer_known(tab: Tab) -> None:
    def refuse(route: Route) -> None:
        if "event-stream" in route.request.headers.get("accept", ""):
            route.fulfill(status=401, content_type="application/problem+json", body="{}")
        else:
            route.continue_()

    tab.page.route("**/topics", refuse)  # as a server that was started again, with a token of its own
    tab.open("/topics")
    tab.page.locator("#live-text", has_text="does not know this page's token").wait_for()
    tab.page.unroute("**/topics")
    tab.page.wait_for_function("() => document.getElementById('live-text').textContent === 'live'")
    assert all("401" in said for said in tab.faults)
    tab.faults.clear()


def test_times_are_in_the_zone_of_the_reader(tab: Tab, filled: Home) -> None:
    tab.open("/topics/orders")
    shown = tab.page.locator("dd time").first
    assert shown.get_attribute("datetime", timeout=5000) is not None
    expected = tab.page.evaluate(
        "t => new Intl.DateTimeFormat('en-GB', {timeZone: 'Asia/Kolkata', hour: '2-digit', minute: '2-digit'})"
        ".format(new Date(t))", shown.get_attribute("datetime"),
    )  # fmt: skip
    assert expected in shown.inner_text()


def test_the_tail_shows_what_comes_freezes_and_goes_on_without_a_gap(tab: Tab, filled: Home) -> None:
    orders = filled.topic("orders")
    tab.open("/topics/orders/tail?partition=0")
    page = tab.page
    page.locator("#live-text", has_text="live").wait_for()
    sent = threading.Event()

    def send(text: str) -> None:
        with orders.transaction() as out:
            out.send(b"<b>k</b>", text.encode(), partition=0)
        sent.set()

    while not page.get_by_text("probe", exact=True).count():  # the stream begins where the topic ends now
        send("probe")
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Pause").click()
    page.locator("#live-text", has_text="paused").wait_for()
    send("while frozen")
    page.wait_for_timeout(300)
    assert not page.get_by_text("while frozen").count()
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("while frozen").wait_for()
    assert page.get_by_text("<b>k</b>").count()


def test_the_tail_says_how_many_of_a_burst_it_left_out(tab: Tab, filled: Home) -> None:
    tab.open("/topics/orders/tail")
    tab.page.locator("#live-text", has_text="live").wait_for()
    dropped = tab.page.locator("#tail-dropped")
    for _ in range(50):
        filled.topic("orders").append([(b"k", b"v")] * 1000)
        tab.page.wait_for_timeout(100)
        if dropped.inner_text() != "0":
            break
    assert int(dropped.inner_text().replace(",", "")) > 800


def test_a_record_is_produced_by_hand(tab: Tab, filled: Home) -> None:
    tab.open("/topics/orders")
    tab.page.get_by_role("link", name="Produce a record").click()
    tab.page.get_by_label("Key").fill("<i>key</i>")
    tab.page.locator("#f-value").fill('{"by": "hand", "id": 9007199254740993}')
    tab.page.get_by_role("button", name="Append the record").click()
    tab.page.get_by_text("Appended at offset").wait_for()
    assert "9007199254740993" in tab.page.locator("main").inner_text()
    assert b"9007199254740993" in b"".join(
        r.value or b"" for r in filled.topic("orders").records() if r.key == b"<i>key</i>"
    )


def test_a_search_says_how_far_it_got(tab: Tab) -> None:
    tab.open("/topics/orders/records")
    tab.page.get_by_label("Key or value has").fill("$.id=9007199254740993")
    tab.page.get_by_role("button", name="Show").click()
    tab.page.get_by_text("1 record found").wait_for()
    assert "among 5 records" in tab.page.locator("main").inner_text()


def test_pause_play_requeue_and_reset_by_hand(tab: Tab, filled: Home) -> None:
    page, mails = tab.page, filled.queue("mails")

    def confirm(button: str) -> None:
        page.get_by_label("Reason").fill("by <b>hand</b>")
        page.get_by_role("button", name=button, exact=True).click()
        page.locator(".notice").wait_for()

    tab.open("/queues/mails")
    page.get_by_role("link", name="Pause the queue").click()
    confirm("Pause")
    assert mails.stats().paused
    page.get_by_role("link", name="Play", exact=True).click()
    confirm("Play")
    assert not mails.stats().paused
    tab.open("/queues/mails/dead")
    page.get_by_role("link", name="Requeue dead letter 0").click()
    confirm("Put back")
    assert [letter.requeued for letter in mails.dead()] == [True]
    tab.open("/groups/billing/orders")
    page.get_by_role("link", name="Reset").click()
    page.get_by_label("Move to").fill("earliest")
    page.get_by_role("button", name="Show what it does").click()
    page.get_by_text("What will happen").first.wait_for()
    confirm("Move the group")
    tab.open("/home/actions")
    listed = page.locator("main").inner_text()
    assert all(what in listed for what in ("pause queue", "play queue", "requeue", "reset group", "by <b>hand</b>"))


def test_the_keyboard_is_enough(tab: Tab) -> None:
    tab.open("/topics")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("location.hash") == "#content"


@pytest.mark.parametrize("tab", ["narrow"], indirect=True)
def test_no_page_is_wider_than_a_narrow_screen(tab: Tab) -> None:
    wider = []
    for path in PAGES:
        tab.open(path)
        if not tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            wider.append(path)
    assert wider == []


@pytest.mark.parametrize("tab", list(LOOKS), indirect=True)
def test_no_page_has_a_serious_fault(tab: Tab, request: pytest.FixtureRequest) -> None:
    look = request.node.callspec.params["tab"]
    try:
        script = axe.script().read_text()
    except Missing as missing:
        pytest.skip(f"{NONE} axe-core: {missing}")
    found: dict[str, Any] = {}
    for path in PAGES if look == "light" else SOME:
        tab.open(path)
        tab.page.evaluate(script)
        faults = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in faults
            if one["impact"] in ("serious", "critical")
        ]
        if serious:
            found[path] = serious
    assert found == {}
