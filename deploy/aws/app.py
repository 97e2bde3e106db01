"""The CDK app: `cdk deploy` runs it; README.md says what its settings are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from aws_cdk import App
from stack import TailraceStack, Wanted

BUILD = Path(__file__).parent / "build"
DEFAULTS = {"indexer_bundle": str(BUILD / "indexer"), "consumer_bundle": str(BUILD / "consumer")}


def wanted_of(app: App) -> Wanted:
    """What the context (`cdk -c topic=orders …`) asks for."""
    given: dict[str, Any] = dict(DEFAULTS)
    for field in fields(Wanted):
        if (value := app.node.try_get_context(field.name)) is not None:
            given[field.name] = int(value) if field.name in ("partitions", "window") else value
    wanted = Wanted(**given)
    if wanted.topic and not (wanted.group and wanted.handler):
        raise SystemExit("a consumer of a topic needs group=… and handler=module:function as well")
    return wanted


def main() -> None:
    """Synthesise the stack."""
    app = App()
    name = app.node.try_get_context("name") or "tailrace"
    TailraceStack(app, name, wanted_of(app))
    app.synth()


if __name__ == "__main__":
    main()
