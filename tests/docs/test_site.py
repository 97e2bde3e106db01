"""`make docs` and `make demo-log`: the site builds, no link is broken, and the demonstration shows what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
BESIDE_THE_SITE = [path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"]
"""Pages that people read in the repository: the site does not have them, so it does not check their links."""


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site from a copy of its sources in a folder, as `make docs` does."""
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run([program, "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_site_is_built_whole_and_asks_no_other_host(sources: Path) -> None:
    done = build(sources)
    assert done.returncode == 0, done.stdout + done.stderr
    site = sources / "build" / "docs"
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'(<script[^>]+src|<link[^>]+href|<img[^>]+src)="(https?:)?//', text), page
    assert 'id="tailrace.log.topic.Topic.grow"' in (site / "reference" / "log.html").read_text()


def test_every_page_can_be_reached(sources: Path) -> None:
    named = (ROOT / "zensical.toml").read_text()
    decisions = (ROOT / "docs" / "decisions" / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert f'"{name}"' in named or f"({page.name})" in decisions, f"{name} is in no list of pages"


@pytest.mark.parametrize("link", ["guide/gone.md", "guide/log.md#gone"])
def test_a_broken_link_is_noticed(sources: Path, link: str) -> None:
    page = sources / "docs" / "glossary.md"
    before = page.read_text()
    page.write_text(f"{before}\n[there]({link})\n")
    try:
        assert build(sources).returncode != 0
    finally:
        page.write_text(before)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for opening, inline in pairwise(MarkdownIt("commonmark").enable("table").parse(page.read_text())):
        if opening.type == "heading_open":
            slug = re.sub(r"[^\w\- ]", "", inline.content.lower()).replace(" ", "-")
            found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{n}" if n else slug for slug, last in found.items() for n in range(last + 1)}


@pytest.mark.parametrize("page", BESIDE_THE_SITE, ids=lambda page: page.name)
def test_links_of_pages_beside_the_site_lead_somewhere(page: Path) -> None:
    links = re.findall(r'\]\(([^)\s]+)\)|(?:href|src|srcset)="([^"]+)"', page.read_text())
    for link in map(urlsplit, filter(None, (one or other for one, other in links))):
        if link.scheme:
            continue
        there = page.parent / unquote(link.path) if link.path else page
        assert there.exists(), link.geturl()
        assert not link.fragment or link.fragment in anchors(there), link.geturl()


def test_both_pictures_are_the_same_in_other_colours() -> None:
    light, dark = (ROOT / "docs" / f"architecture-{kind}.svg" for kind in ("light", "dark"))
    ElementTree.parse(light)
    shapes = [re.sub("#[0-9a-f]{6}", "colour", path.read_text()) for path in (light, dark)]
    assert shapes[0] == shapes[1]
    colours = [set(re.findall("#[0-9a-f]{6}", path.read_text())) for path in (light, dark)]
    assert not colours[0] & colours[1]


def test_the_demonstration_shows_what_it_says_twice_and_cleans_up(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "demo_log.py", "1"],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        assert done.stdout.count("✓") == 6
        assert "kill -9 bob" in done.stdout
    assert [*tmp_path.iterdir()] == []
