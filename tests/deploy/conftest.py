"""The stack of deploy/aws as CloudFormation gets it, the indexer's bundle, and a server that runs both."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NONE, started
from tests.deploy.template import Template
from tests.servers.cdk import synthesised
from tests.servers.environment import ROOT
from tests.servers.ministack import ministack as start_ministack
from tests.servers.process import Missing, Server

CONTEXT = {"topic": "orders", "group": "mailer", "handler": "shop:mail"}


@pytest.fixture(scope="session")
def template() -> Template:
    """With a consumer of a topic."""
    try:
        return Template(synthesised(CONTEXT))
    except Missing as missing:
        pytest.skip(f"{NONE} the CDK: {missing}")


@pytest.fixture(scope="session")
def indexer_bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The bundle for this machine's Python, and what the command said."""
    out = tmp_path_factory.mktemp("bundle") / "indexer"
    machine = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [sys.executable, "deploy/aws/bundle.py", "indexer", "--out", str(out)]
    done = subprocess.run(
        [*command, "--python", python, "--machine", machine], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"no wheels for this machine: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.fixture(scope="module")
def ministack() -> Iterator[Server]:
    """CloudFormation, Lambda and what they need, by ministack."""
    with started("ministack", start_ministack) as server:
        yield server
