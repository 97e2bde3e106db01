"""All of these run with few file descriptors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.descriptors import few_descriptors


@pytest.fixture(scope="module", autouse=True)
def _few_descriptors() -> Iterator[None]:
    with few_descriptors():
        yield
