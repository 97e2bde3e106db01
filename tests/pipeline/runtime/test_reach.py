"""Places that tasks share with the driver, or do not: a process with a mount namespace of its own is another host."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.adaptors.registry import make_writer
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition
from tailrace.pipeline.runtime.open_topics import open_home
from tailrace.pipeline.runtime.reach import leave_marks, refusal

TASK = """
import os, pickle, sys
from tailrace.pipeline.runtime.reach import refusal
print(refusal(pickle.loads(bytes.fromhex(sys.argv[1]))), "|", os.listdir(sys.argv[2]))
"""


def definition(path: Path) -> Definition:
    for name in ("home", "from", "out", "topics"):
        (path / name).mkdir()
    sinks = (
        SinkDefinition("lake", "file", {"path": "out"}),
        SinkDefinition("bus", "tailrace", {"home": "topics"}),
    )
    made = Definition("shop", "home", SourceDefinition("tailrace", {"home": "from"}), sinks).placed(path)
    made.check_settings()
    return made


@pytest.mark.parametrize(
    ("hidden", "what"),
    [("home", "the home "), ("from", "the source"), ("out", "the sink 'lake'"), ("topics", "the sink 'bus'")],
)
def test_a_worker_that_does_not_see_a_place_says_so_and_makes_nothing(tmp_path: Path, hidden: str, what: str) -> None:
    made = definition(tmp_path)
    reach = leave_marks(made, open_home(made.home))
    assert refusal(reach) is None, "the driver itself sees all"
    own = 'mount -t tmpfs none "$0" && exec "$@"'
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", own, str(tmp_path / hidden)]
    task = [sys.executable, "-c", TASK, pickle.dumps(reach).hex(), str(tmp_path / hidden)]
    said = subprocess.run([*apart, *task], capture_output=True, text=True, check=True, cwd="/").stdout
    assert (
        f"does not see what the driver has just written to {'' if hidden == 'home' else 'the place of '}{what}" in said
    )
    assert "mounted" in said
    assert said.strip().endswith("| []"), "no stray home or folder is made"
    shared = subprocess.run(task, capture_output=True, text=True, check=True, cwd="/").stdout
    assert shared.startswith("None |")


def test_a_copy_of_a_place_is_not_the_place(tmp_path: Path) -> None:
    made = definition(tmp_path)
    leave_marks(made, open_home(made.home))
    again = leave_marks(made, open_home(made.home))
    writer = make_writer("file", made.sinks[0].checked())
    assert writer.sees_mark("shop.lake", again.mark)
    assert not writer.sees_mark("shop.lake", "an earlier run's")
    assert refusal(replace(again, mark="an earlier run's")) is not None


@pytest.mark.parametrize("kind", ["toml", "py"])
def test_relative_paths_start_at_the_pipelines_file(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pipelines" / f"shop.{kind}"
    file.parent.mkdir()
    file.write_text(
        'import tailrace\npipeline = tailrace.pipeline("shop", home="./data")'
        '.source("file", path="../in/*.jsonl").save("file", path="${OUT}")'
        if kind == "py"
        else 'name = "shop"\nhome = "./data"\n[source]\nadaptor = "file"\npath = "../in/*.jsonl"\n'
        '[[branch]]\nsave = {adaptor = "file", path = "${OUT}"}'
    )
    monkeypatch.setenv("OUT", "out")
    monkeypatch.chdir("/")
    made = load(Path(os.path.relpath(file)))
    monkeypatch.chdir(tmp_path)
    assert made.home == str(file.parent / "data")
    assert made.source.checked().path == str(tmp_path / "in" / "*.jsonl")  # type: ignore[attr-defined]
    assert made.sinks[0].checked().path == str(file.parent / "out")  # type: ignore[attr-defined]
    assert made.sinks[0].settings == {"path": "${OUT}"}, "what changed since the last run is seen by what was written"
    assert made.placed("/").sinks == made.sinks


def test_what_is_no_relative_path_stays_as_it_is(tmp_path: Path) -> None:
    source = SourceDefinition("tailrace", {"home": "s3://bucket/x?table=t"})
    made = Definition("shop", "memory://", source, (SinkDefinition("lake", "file", {"path": "/abs"}),)).placed(tmp_path)
    assert made.home == "memory://"
    assert made.source.checked().home == "s3://bucket/x?table=t"  # type: ignore[attr-defined]
    assert made.sinks[0].checked().path == "/abs"  # type: ignore[attr-defined]
