"""What has changed in a pipeline between two runs, and which of it would lose data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.adaptors.contract import Adaptor, Settings
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.define.drift import changes, described
from tailrace.pipeline.functions import omit, pick
from tailrace.pipeline.operate import ledger
from tests.pipeline.toys import ToySink

KEY = b"key of a home"


def of(
    source: dict[str, Any] | None = None, *, name: str = "lake", functions: Any = (), branch: str = ".*", **sink: Any
) -> Any:
    start = tailrace.pipeline("shop", **(source or {}).pop("pipeline", {}))
    given = {"adaptor": "postgres", "uri": "postgres://u:old@h/d", "namespace": "a", **(source or {})}
    to = {"adaptor": "file", "path": "./out", **sink}
    made = start.source(**given).branch(branch).transform(*functions).save(**to, name=name)
    return json.loads(json.dumps(described(made.definition(), KEY)))


def add_one(message: Any) -> Any:
    message.data["x"] = 1
    return message


def add_two(message: Any) -> Any:
    message.data["x"] = 2
    return message


def test_nothing() -> None:
    assert changes(of(functions=[omit("a"), add_one]), of(functions=[omit("a"), add_one])) == []


@pytest.mark.parametrize(
    ("old", "new", "hint", "loses"),
    [
        (of(), of({"uri": "postgres://u:new@h/d"}), None, False),
        (of(), of({"uri": "postgres://u:old@other/d"}), "the source has another uri", False),
        (
            of(adaptor="postgres", uri="host=h password='o\\'l d' dbname=d"),
            of(adaptor="postgres", uri="host=h password=n&w dbname=d"),
            None,
            False,
        ),
        (
            of(adaptor="postgres", uri="postgres://h/d?user=u&password=old"),
            of(adaptor="postgres", uri="postgres://h/d?user=u&password=new"),
            None,
            False,
        ),
        (
            of(adaptor="postgres", uri="host=h password=old dbname=d"),
            of(adaptor="postgres", uri="host=h password=old dbname=e"),
            "the writer 'lake' has another uri",
            True,
        ),
        (of(), of({"adaptor": "file"}), "was 'postgres', is 'file'", True),
        (of(), of({"namespace": "b"}), "namespace was 'a', is 'b'", False),
        (of(), of({"pipeline": {"partitions": 9}}), "partitions was 8, is 9", True),
        (of(), of({"pipeline": {"flush_seconds": 9}}), "flush_seconds was 1.0, is 9", False),
        (of(), of(path="./elsewhere"), "the writer 'lake' has another path: what it had taken is not there", True),
        (of(), of(adaptor="stdout"), "has another adaptor", True),
        (of(), of(format="csv"), "the writer 'lake' has another format", False),
        (of(), of(on_error="skip"), "was 'stop', is 'skip'", False),
        (of(), of(redeliver="singly"), "redeliver of the writer 'lake' was 'halves', is 'singly'", False),
        (of(functions=[omit("a")]), of(functions=[omit("b")]), "functions of the writer 'lake' were omit", False),
        (of(functions=[omit("a")]), of(functions=[pick("a")]), "were omit [", False),
        (of(functions=[add_one]), of(functions=[add_two]), "were add_one [", False),
        (of(functions=[lambda m: m]), of(functions=[lambda m: None]), "were <lambda> [", False),
        (of(branch="^orders"), of(branch="^orders$"), "was '^orders', is '^orders$'", False),
        (of(branch="^orders$"), of(branch=".*"), "of people it has passed over what is in the commit log", True),
    ],
)
def test_one_change(old: Any, new: Any, hint: str | None, loses: bool) -> None:
    found = changes(old, new, ["orders", "people"])
    if hint is None:
        assert found == []
        return
    (change,) = [c for c in found if hint in c.text]
    assert change.loses is loses


def test_writers_that_come_and_go() -> None:
    texts = [c.text for c in changes(of(name="lake"), of(name="pond"))]
    assert texts[0].startswith("the writer 'lake' is gone")
    assert "'pond' is new: it is filled from the start" in texts[1]
    assert "it is 'lake' under another name" in texts[1]
    assert not any(c.loses for c in changes(of(name="lake"), of(name="pond")))


FILE = """
import tailrace

def known(message):
    return message if message.id in {"a", "b", "c", "d"} else None

pipeline = tailrace.pipeline("shop").source("file", path="x").transform(known, lambda m: m).save("stdout")
"""
SHOWN = """
import json, sys
from tailrace.pipeline.define.drift import described
from tailrace.pipeline.define.builder import load
print(json.dumps(described(load(sys.argv[1]), b'key')))
"""


def test_the_same_file_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    seen = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SHOWN, str(tmp_path / "shop.py")]
        seen.add(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert len(seen) == 1
    with tailrace.open("memory://") as home:
        definition = load(tmp_path / "shop.py")
        ledger.remember(home, definition)
        kept = ledger.remembered(home, "shop")
        assert kept == ledger.now(home, definition, kept or {})


def test_no_secret_is_kept() -> None:
    kept = json.dumps(of({"uri": "postgres://u:hunter2@h/d"}, path="hunter2"))
    assert "hunter2" not in kept


def test_a_mark_is_another_in_each_home_and_none_is_kept_of_a_secret() -> None:
    made = (
        tailrace.pipeline("x")
        .source("file", path="./in")
        .save("tests.pipeline.define.test_drift:secret", token="hunter2")
    )
    one, other, old = (described(made.definition(), key) for key in (b"one", b"other", None))
    assert one["source"]["settings"] != other["source"]["settings"]
    (sink,) = one["sinks"].values()
    assert sink["settings"] == {}, "a token leaves no mark, however short"
    assert one["keyed"]
    assert "keyed" not in old


class SecretSettings(Settings):
    token: str = ""


class SecretSink(ToySink):
    """A sink with a secret."""


secret = Adaptor("secret", "a sink with a secret", None, None, SecretSink, SecretSettings)


def test_what_an_older_version_kept_is_compared_as_it_was_kept(tmp_path: Path) -> None:
    made = tailrace.pipeline("x").source("file", path="./in").save("file", path="./out").definition()
    with tailrace.open(tmp_path) as home:
        before = described(made, None)
        del before["sinks"]["file"]["redeliver"]
        assert changes(before, ledger.now(home, made, before)) == []
        ledger.remember(home, made)
        kept = ledger.remembered(home, "x")
        assert kept is not None
        assert kept["keyed"]
        assert changes(kept, ledger.now(home, made, kept)) == []
    with tailrace.open(tmp_path) as again:
        assert changes(kept, ledger.now(again, made, kept)) == [], "the key stays"
