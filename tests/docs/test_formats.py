"""The bytes on the pages of docs/formats are the ones the code writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.worked import PAGES

FORMATS = Path(__file__).parents[2] / "docs" / "formats"


@pytest.mark.parametrize(
    ("page", "example"),
    [(page, example) for page, examples in PAGES.items() for example in examples],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_page_shows_what_is_written(page: str, example: Callable[[], str]) -> None:
    text = (FORMATS / page).read_text()
    assert f"```\n{example()}```\n" in text, f"{page} should have\n{example()}"
