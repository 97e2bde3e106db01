"""Delta tables keep the contract of writers: as states and as change logs, on disk and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.testing import WriterContract
from tests.adaptors.delta.place import Place


class TestStateOnDisk(WriterContract):
    @pytest.fixture
    def sink(self, disk: Place) -> Place:
        return disk


class TestChangesOnDisk(WriterContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Place:
        return Place(tmp_path, keep="changes")


@pytest.mark.server
class TestStateInABucket(WriterContract):
    @pytest.fixture
    def sink(self, remote: Place) -> Place:
        return remote
