"""Definitions are checked before anything is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.errors import BadName, BadSetting
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition

SINK = SinkDefinition("lake", "file", {})
GOOD = Definition("shop", "./home", SourceDefinition("file", {}), (SINK,))


def test_a_good_one() -> None:
    GOOD.check()


@pytest.mark.parametrize(
    ("bad", "error", "hint"),
    [
        (replace(GOOD, name="a.b"), BadName, "pipeline's name"),
        (replace(GOOD, sinks=()), BadSetting, "has no sink"),
        (replace(GOOD, name="shop--ahead"), BadSetting, "does not end in --ahead"),
        (replace(GOOD, sinks=(SINK, SINK)), BadSetting, "the same name"),
        (replace(GOOD, sinks=(replace(SINK, name=""),)), BadName, "writer's name"),
        (replace(GOOD, sinks=(replace(SINK, namespace="*"),)), BadSetting, "the writer 'lake': the namespace '\\*'"),
        (replace(GOOD, source=SourceDefinition("file", {}, "(")), BadSetting, "the source of 'shop'"),
        (replace(GOOD, sinks=(replace(SINK, on_error="stopp"),)), BadSetting, "did you mean 'stop'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_refused(bad: Definition, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        bad.check()


def test_settings_are_not_shown() -> None:
    secret = replace(
        GOOD, source=SourceDefinition("x", {"uri": "hunter2"}), sinks=(replace(SINK, settings={"p": "hunter2"}),)
    )
    assert "hunter2" not in repr(secret)
