"""The pipeline of docs/guide/dynamodb.md, run as it stands there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tailrace.adaptors.dynamodb.item_json import from_text
from tailrace.adaptors.dynamodb.source.items import DOCUMENT
from tests.adaptors.dynamodb.place import ID, Place
from tests.cli.runs import PROGRAM
from tests.conftest import started
from tests.docs.test_examples import ROOT, blocks, environment
from tests.servers.dynoxide import dynoxide
from tests.servers.process import Server

GUIDE = (ROOT / "docs" / "guide" / "dynamodb.md").read_text()


@pytest.fixture
def empty() -> Iterator[Server]:
    """A server with no tables, since the guide's have names that are not a test's own."""
    with started("dynoxide", dynoxide) as server:
        yield server


def by_id(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: int(item["id"]))


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_pipeline_of_the_guide(empty: Server, tmp_path: Path) -> None:
    (text,) = [block.text for block in blocks(GUIDE) if "[source]" in block.text]
    (tmp_path / "shop.toml").write_text(text)
    env = environment() | {
        "AWS_ACCESS_KEY_ID": empty.key, "AWS_SECRET_ACCESS_KEY": empty.secret, "AWS_ENDPOINT_URL": empty.url,
    }  # fmt: skip
    with Place(empty) as place:
        place.prefix = ""
        place.table("orders")
        place.put("orders", {"id": 7, "total": Decimal("12.50")}, {"id": 8, "tags": frozenset({"new"})})
        place.table("customers", ID._replace(hash="name", hash_kind="S"))
        command = [PROGRAM, "run", "shop.toml", "--once"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        assert by_id(place.items("copy-orders")) == by_id(place.items("orders"))
        assert place.items("copy-customers") == []
    files = (tmp_path / "out" / "orders").rglob("*.parquet")
    texts = [text for file in files for text in pq.read_table(file).column(DOCUMENT.name).to_pylist()]
    found = {from_text(text)["id"] for text in texts}  # changes of the last seconds before the copy come, too
    assert found == {7, 8}


def test_commands_of_the_guide_are_those_of_the_errors() -> None:
    from tailrace.adaptors.dynamodb.service import TableDescription
    from tailrace.adaptors.dynamodb.source.tables import lacking

    told = lacking(TableDescription("orders", "", ID, None, "", 0, 0, True))
    (command,) = re.findall(r"`(aws .*?)`", told)
    assert command in GUIDE
