"""The registry: adaptors of several packages, one of them broken; settings as people mistype them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptors import registry
from tailrace.adaptors.contract import Settings
from tailrace.errors import BadSetting
from tests.cli.runs import Cli

BROKEN = """raise RuntimeError("made for another version")"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packages of somebody else's: one that breaks when it is imported, one that works."""
    (tmp_path / "broken_one.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("broken", "broken_one:adaptor", "tailrace.adaptors"),
        EntryPoint("toy", "tests.pipeline.toys:sink", "tailrace.adaptors"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry.places.cache_clear()
    yield
    registry.places.cache_clear()


def test_a_broken_package_leaves_the_others(packages: None) -> None:
    assert set(registry.adaptors()) == {"toy", *registry.OURS}
    assert registry.adaptor("toy").about == "rows written down"
    why = "there is no adaptor at 'broken_one:adaptor': RuntimeError: made for another version"
    assert registry.broken() == {"broken": why}
    with pytest.raises(BadSetting, match="made for another version"):
        registry.adaptor("broken")


def test_about_says_which_is_broken(packages: None, tmp_path: Path) -> None:
    ran = Cli(tmp_path)("about")
    assert [row[0] for row in ran.rows[1:]] == ["toy", *sorted(registry.OURS)]
    assert "broken cannot be used" in ran.err


def test_a_typo_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadSetting, match="tailrace has no 'postgers'; did you mean 'postgres'"):
        registry.adaptor("postgers")
    with pytest.raises(BadSetting, match="there is no adaptor at 'no_such_module:x'"):
        registry.adaptor("no_such_module:x")
    with pytest.raises(BadSetting, match="is not an Adaptor"):
        registry.adaptor("os:path")
    with pytest.raises(BadSetting, match="'stdout' cannot be read from"):
        registry.make_reader("stdout", {})


@pytest.mark.parametrize("name", ["postgresql://u:hunter2@h/d", "u:hunter2@h/d"])
def test_a_uri_where_a_name_belongs_is_not_printed(name: str) -> None:
    with pytest.raises(BadSetting, match="an adaptor is named first, as 'postgres' is; where") as told:
        registry.adaptor(name)
    assert "hunter2" not in str(told.value)


class Some(Settings):
    """For these tests."""

    uri: str
    rows: int = 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"uri": "x", "row": 1}, "the source has no 'row'; did you mean 'rows'?"),
        ({}, "the source needs 'uri'"),
        ({"uri": "a${NO_SUCH_VARIABLE}b"}, r"uri uses \$\{NO_SUCH_VARIABLE\}, which is not set; export"),
        ({"uri": "x", "rows": "many"}, "the source: Expected `int`"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        registry.settings("the source", Some, given)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_ROWS", "7")
    assert registry.settings("the source", Some, {"uri": "u", "rows": "${SHOP_ROWS}"}) == Some(uri="u", rows=7)


def test_a_variable_inside_a_table_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hidden")
    made = registry.writer_settings("delta", {"path": "./lake", "storage_options": {"AWS_SECRET": "${LAKE_SECRET}"}})
    assert made.storage_options == {"AWS_SECRET": "hidden"}  # type: ignore[attr-defined]
    with pytest.raises(BadSetting, match=r"storage_options.KEY uses \$\{NOT_SET\}, which is not set"):
        registry.writer_settings("delta", {"path": "./lake", "storage_options": {"KEY": "${NOT_SET}"}})


def test_a_variable_inside_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "id")
    for given in (["${SHOP_KEY}", "n"], ("${SHOP_KEY}", "n")):
        made = registry.reader_settings("file", {"path": "./in", "keys": given})
        assert made.keys == ("id", "n")  # type: ignore[attr-defined]
    with pytest.raises(BadSetting, match=r"keys\[1\] uses \$\{NOT_SET\}, which is not set"):
        registry.reader_settings("file", {"path": "./in", "keys": ["id", "${NOT_SET}"]})
