"""A home with some of everything, its server, a browser's form, and Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tailrace.console.limits import Limits
from tailrace.home import Home
from tests.conftest import NONE
from tests.console.serving import OPERATOR, Answer, Client, running
from tests.console.web.filled import fill
from tests.console.web.pipelines import fill_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Visitor(Client):
    """A browser without a screen: the cookie, and forms with the Origin of the page they are on."""

    @property
    def origin(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str, status: int = 200) -> str:
        """The HTML of a page."""
        answer = self.get(path)
        text = answer.body.decode()
        assert answer.status == status, (path, answer.status, text)
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return text

    def submit(self, path: str, **fields: Any) -> Answer:
        """Send a form."""
        body = urlencode({"form": "1", **fields}).encode()
        media = {"Content_Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, body, Origin=self.origin, **media)


def visitor(client: Client, token: str = OPERATOR) -> Visitor:
    """A browser that has the cookie of a token."""
    return Visitor(client.port, None, {"Cookie": f"tailrace-{client.port}={token}"})


@pytest.fixture
def filled(home: Home) -> Home:
    """The home, with some of everything in it."""
    fill(home)
    fill_pipeline(home)
    return home


@pytest.fixture
def site(filled: Home, place: Path) -> Iterator[Visitor]:
    """An operator's browser at that home."""
    with running(place, limits=Limits(poll_seconds=0.05)) as client:
        yield visitor(client)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; tests in it are skipped, loudly, where it is missing.

    It ends with its file: as long as it is there an event loop runs in this thread, and `asyncio.run` fails."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip(f"{NONE} Chromium: `apt-get install chromium` gives it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip(f"{NONE} Chromium: the package playwright is missing")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
