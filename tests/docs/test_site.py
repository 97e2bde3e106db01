"""`make docs` and `make demo`: the site builds, its links lead somewhere, and the demonstration shows what it says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def docs() -> ModuleType:
    """tools/docs.py as a module."""
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs"] = module
    spec.loader.exec_module(module)
    return module


def test_the_site_is_built_and_no_link_is_broken(docs: ModuleType, tmp_path: Path) -> None:
    assert docs.build(tmp_path) >= 10
    index = (tmp_path / "index.html").read_text()
    assert '<source media="(prefers-color-scheme: dark)" srcset="docs/architecture-dark.svg">' in index
    for link in re.findall(r'(?:href|src|srcset)="([^"#:]+)', index):
        assert (tmp_path / link).exists(), link
    guide = (tmp_path / "docs" / "guide" / "log.html").read_text()
    assert 'href="../formats/entry.html"' in guide
    assert 'aria-current="page">The log</a>' in guide


def test_a_broken_link_is_noticed(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "repository"
    monkeypatch.setattr(docs, "ROOT", root)
    (root / "docs").mkdir(parents=True)
    (tmp_path / "outside").touch()
    (root / "README.md").write_text(
        "# A\n## B c!\n[here](#b-c) [no](#d) [gone](docs/gone.md) [there](docs/there.md#e) [out](https://example.org/x)\n"
    )
    (root / "docs" / "there.md").write_text("# E\n[up](../README.md#b-c) [out](../../outside)\n")
    assert docs.troubles(docs.pages()) == [
        "README.md: #d: README.md has no such heading",
        "README.md: docs/gone.md: there is no such file",
        "docs/there.md: ../../outside: there is no such file",
    ]
    with pytest.raises(SystemExit, match="links that lead nowhere"):
        docs.build(tmp_path / "site")


def test_links_in_html_lead_to_pages_too(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text('# A\n\n<p><a href="OTHER.md">other</a></p>\n')
    (tmp_path / "OTHER.md").write_text("# B\n")
    docs.build(tmp_path / "site")
    assert '<a href="OTHER.html">other</a>' in (tmp_path / "site" / "index.html").read_text()


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
