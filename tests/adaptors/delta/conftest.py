"""Fixtures for Delta: a bucket for the run, a prefix of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tailrace.storage.local.files import REAL as FILES
from tests.adaptors.delta.place import Place
from tests.servers.process import Server

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not machines: nothing need reach the disk."""
    monkeypatch.setattr(FILES, "sync", lambda descriptor: None)


@pytest.fixture(scope="session")
def bucket(seaweedfs: Server) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket, and the storage options for it."""
    options = {
        "AWS_ENDPOINT_URL": seaweedfs.url,
        "AWS_ACCESS_KEY_ID": seaweedfs.key,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    s3 = boto3.client(
        "s3",
        endpoint_url=seaweedfs.url,
        aws_access_key_id=seaweedfs.key,
        aws_secret_access_key=seaweedfs.secret,
        region_name="us-east-1",
    )
    s3.create_bucket(Bucket="lake")
    yield "lake", options
    s3.close()


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    """On disk, as states."""
    return Place(tmp_path / "lake")


@pytest.fixture
def remote(bucket: tuple[str, dict[str, str]]) -> Place:
    """In a bucket, as states."""
    name, options = bucket
    return Place(f"s3://{name}/test{next(_numbers)}", options)
