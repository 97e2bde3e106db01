"""Builds the documentation into build/docs: one HTML page for each Markdown page, with navigation; checks every link.

python tools/docs.py [FOLDER]
"""

# ruff: noqa: T201

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
SECTIONS = {"guide": "Guide", "operations": "Operations", "formats": "Formats", "decisions": "Decisions"}
STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --dim: #59636e; --line: #d0d7de; --back: #fff;
  --code: #f6f8fa; --link: #0969da }
@media (prefers-color-scheme: dark) {
  :root { --text: #f0f6fc; --dim: #9198a1; --line: #3d444d; --back: #0d1117; --code: #151b23; --link: #58a6ff } }
* { box-sizing: border-box }
body { margin: 0; color: var(--text); background: var(--back); font: 16px/1.6 system-ui, sans-serif; display: flex }
nav { flex: 0 0 15rem; padding: 1.5rem 1rem; border-right: 1px solid var(--line); font-size: .9rem; min-height: 100vh }
nav ul { list-style: none; margin: 0 0 1rem; padding: 0 } nav strong { color: var(--dim); font-weight: 600 }
nav a[aria-current] { font-weight: 600; color: var(--text) }
main { flex: 1; min-width: 0; max-width: 58rem; padding: 1.5rem 2.5rem 4rem }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
img { max-width: 100%; height: auto } h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 2.2rem }
code { font: .875em/1.5 ui-monospace, monospace; background: var(--code); padding: .1em .35em; border-radius: 4px }
pre { background: var(--code); padding: .9rem 1rem; border-radius: 6px; overflow-x: auto } pre code { padding: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .92rem }
th, td { border: 1px solid var(--line); padding: .35rem .7rem; text-align: left; vertical-align: top }
@media (max-width: 50rem) { body { display: block } nav { border: 0; min-height: 0 } main { padding: 1rem } }
"""


@dataclass(frozen=True)
class Page:
    """A Markdown page: its source, its tokens, the anchors of its headings."""

    source: Path
    title: str
    tokens: list[Token]
    anchors: frozenset[str]

    @property
    def target(self) -> Path:
        """Where its HTML goes, below the folder of the site."""
        relative = self.source.relative_to(ROOT)
        return Path("index.html") if relative == Path("README.md") else relative.with_suffix(".html")


def parser() -> MarkdownIt:
    """Markdown as GitHub reads it, as far as these pages need it."""
    return MarkdownIt("commonmark", {"html": True}).enable("table")


def read(source: Path) -> Page:
    """Parse a page, and give its headings anchors as GitHub does."""
    tokens = parser().parse(source.read_text())
    anchors: dict[str, int] = {}
    title = source.stem
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            anchors[slug] = anchors.get(slug, -1) + 1
            opening.attrSet("id", f"{slug}-{anchors[slug]}" if anchors[slug] else slug)
            title = text if opening.tag == "h1" else title
    ids = {str(token.attrs["id"]) for token in tokens if "id" in token.attrs}
    return Page(source, title, tokens, frozenset(ids))


def pages() -> dict[Path, Page]:
    """The pages of the site: README, CHANGELOG, docs, and every Markdown file of the repository they lead to."""
    waiting = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found: dict[Path, Page] = {}
    while waiting:
        source = waiting.pop(0)
        if source not in found and source.exists():
            found[source] = read(source)
            linked = (resolve(source, link) for _, link in links(found[source]))
            waiting += [path for path in linked if path is not None and path.suffix == ".md"]
    return found


def links(page: Page) -> list[tuple[Token, str]]:
    """Every link and image of a page, with the token that has it."""
    out = []
    for token in page.tokens:
        for child in token.children or ():
            for name in ("href", "src"):
                if name in child.attrs:
                    out.append((child, str(child.attrs[name])))
        if token.type == "html_block":
            out += [(token, link) for link in re.findall(r'(?:href|src|srcset)="([^"]+)"', token.content)]
    return out


def resolve(source: Path, link: str) -> Path | None:
    """The file that a link leads to; None for one that leads out of the repository."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    return source if not parts.path else Path(os.path.normpath(source.parent / unquote(parts.path)))


def troubles(found: dict[Path, Page]) -> list[str]:
    """Links that lead nowhere."""
    out = []
    for page in found.values():
        for _, link in links(page):
            path, anchor = resolve(page.source, link), urlsplit(link).fragment
            where = f"{page.source.relative_to(ROOT)}: {link}"
            if path is None:
                continue
            if not path.exists() or not path.is_relative_to(ROOT):
                out.append(f"{where}: there is no such file")
            elif anchor and path in found and anchor not in found[path].anchors:
                out.append(f"{where}: {path.name} has no such heading")
    return out


def relink(page: Page, found: dict[Path, Page], site: Path) -> None:
    """Make the links of a page lead to the HTML pages, and copy the other files they lead to."""
    for token, link in links(page):
        path = resolve(page.source, link)
        if path is None or path.is_dir():
            continue
        target = found[path].target if path in found else path.relative_to(ROOT)
        if path not in found:
            (site / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, site / target)
        fragment = urlsplit(link).fragment
        new = os.path.relpath(target, page.target.parent) + (f"#{fragment}" if fragment else "")
        for name in ("href", "src"):
            if token.attrs.get(name) == link:
                token.attrSet(name, new)
        token.content = token.content.replace(f'"{link}"', f'"{new}"')


def navigation(page: Page, found: dict[Path, Page]) -> str:
    """The list of all pages, seen from one of them."""

    def item(other: Page) -> str:
        current = ' aria-current="page"' if other is page else ""
        href = os.path.relpath(other.target, page.target.parent)
        return f'<li><a href="{href}"{current}>{html.escape(other.title)}</a></li>'

    groups = {"": [p for p in found.values() if p.source.parent == ROOT]}
    for folder, title in SECTIONS.items():
        groups[title] = [p for p in found.values() if p.source.parent == ROOT / "docs" / folder]
    known = [p for some in groups.values() for p in some]
    groups["More"] = [p for p in found.values() if p not in known]
    parts = [
        f"<strong>{title}</strong><ul>{''.join(map(item, some))}</ul>"
        if title
        else f"<ul>{''.join(map(item, some))}</ul>"
        for title, some in groups.items()
        if some
    ]
    return "".join(parts)


def build(site: Path) -> int:
    """Write the site; gives the number of its pages."""
    found = pages()
    if wrong := troubles(found):
        sys.exit("\n".join(["links that lead nowhere:", *wrong]))
    shutil.rmtree(site, ignore_errors=True)
    for page in found.values():
        relink(page, found, site)
        body = parser().renderer.render(page.tokens, parser().options, {})
        text = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(page.title)} · tailrace</title><style>{STYLE}</style>"
            f"<body><nav>{navigation(page, found)}</nav><main>{body}</main></body></html>\n"
        )
        (site / page.target).parent.mkdir(parents=True, exist_ok=True)
        (site / page.target).write_text(text)
    return len(found)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "docs"
    print(f"{build(folder)} pages in {folder}/index.html")
