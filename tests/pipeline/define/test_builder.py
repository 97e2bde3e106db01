"""Writing pipelines in Python, and loading them from files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadInput, BadName, BadSetting
from tailrace.pipeline.define.builder import default_name, load
from tailrace.pipeline.functions import each, omit


def enrich(message: Any) -> Any:
    return message


def shop() -> Any:
    return tailrace.pipeline("shop", home="./data", partitions=4).source(
        "postgres", uri="${SHOP_PG}", namespace=r"^public\."
    )


def test_it_reads_like_the_drawing() -> None:
    made = (
        shop()
        .branch(namespace=r"orders$").transform(omit("card_number"), enrich).save("postgres", uri="${WAREHOUSE}")
        .branch().save("file", path="./out", format="parquet", name="lake", on_error="dead_letter")
        .definition()
    )  # fmt: skip
    assert (made.name, made.home, made.partitions) == ("shop", "./data", 4)
    assert (made.source.adaptor, made.source.namespace) == ("postgres", r"^public\.")
    assert dict(made.source.settings) == {"uri": "${SHOP_PG}"}
    first, second = made.sinks
    assert (first.name, first.namespace, first.on_error) == ("postgres", "orders$", "stop")
    assert first.functions == (omit("card_number"), each(enrich))
    assert (second.name, second.namespace, second.functions) == ("lake", ".*", ())
    assert (second.on_error, dict(second.settings)) == ("dead_letter", {"path": "./out", "format": "parquet"})


def test_a_source_may_be_saved_without_a_branch() -> None:
    made = shop().transform(omit("a")).save("file", path="x").definition()
    assert made.sinks[0].functions == (omit("a"),)


def test_every_call_leaves_what_was_there() -> None:
    base = shop()
    one, two = base.save("file", path="a"), base.save("file", path="b")
    assert [dict(p.definition().sinks[0].settings) for p in (one, two)] == [{"path": "a"}, {"path": "b"}]
    branch = base.branch()
    branch.transform(omit("a"))
    assert branch.save("file", path="c").definition().sinks[0].functions == ()


def test_writers_have_names_that_stay() -> None:
    made = shop()
    for n in range(3):
        made = made.branch().save("file", path=str(n)).branch().save("postgres", uri="x")
    names = [sink.name for sink in made.definition().sinks]
    assert names == ["file", "postgres", "file-2", "postgres-2", "file-3", "postgres-3"]
    assert default_name("package.module:My.Sink", []) == "My-Sink"
    assert default_name("file", ["file", "file-3", "file-2"]) == "file-4"


@pytest.mark.parametrize(
    ("build", "hint"),
    [
        (lambda: tailrace.pipeline("x").save("file"), r"no source yet; .source\(…\) comes before .save"),
        (lambda: tailrace.pipeline("x").transform(enrich), "no source yet"),
        (lambda: tailrace.pipeline("x").definition(), "has no source"),
        (lambda: shop().definition(), "has no sink"),
        (lambda: shop().source("file"), "has a source already"),
        (lambda: shop().save("file").save("file"), r"begin another: .branch\(\).save"),
        (lambda: shop().save("file").transform(enrich), r"begin another"),
        (lambda: shop().transform(enrich).branch(), "has no end"),
        (lambda: shop().save("file").branch("a").definition(), "last branch of 'shop' has no end"),
        (lambda: shop().transform(enrich).definition(), "last branch of 'shop' has no end"),
        (lambda: shop().save("file", name="x").branch().save("stdout", name="x").definition(), "have the same name"),
        (lambda: shop().save("file", on_error="ignore").definition(), "has no 'ignore'; there are: dead_letter"),
        (lambda: shop().branch("(").save("file").definition(), r"the namespace '\(' is not a regular expression"),
        (lambda: tailrace.pipeline("x").source("file", namespace="[").save("file").definition(), "not a regular expr"),
        (lambda: shop().branch(5).save("file").definition(), "is a regular expression, as text, not int"),  # type: ignore[arg-type]
        (
            lambda: tailrace.pipeline("x").source("file", namespace=None).save("file").definition(),
            "as text, not NoneType",
        ),  # type: ignore[arg-type]
        (lambda: shop().save("file", fill=5).definition(), "fill of the writer 'file' has no '5'"),
        (lambda: tailrace.pipeline("x", partitons=3), "has no 'partitons'; did you mean 'partitions'"),
        (lambda: shop().transform(5), "not int"),
        (lambda: tailrace.pipeline("x").source("fil", path="."), "has no 'fil'; did you mean 'file'"),
        (lambda: tailrace.pipeline("x").source("stdout"), "'stdout' cannot be read from"),
        (lambda: shop().save("fil", path="."), "has no 'fil'; did you mean 'file'"),
        (lambda: shop().branch(namspace="a"), "has no 'namspace'; did you mean 'namespace'"),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_built(build: Any, hint: str) -> None:
    with pytest.raises(BadSetting, match=hint):
        build()


@pytest.mark.parametrize(
    ("setting", "given", "hint"),
    [
        ("partitions", 0, "partitions of 'x' is a whole number of at least 1, not 0"),
        ("partitions", "8", "whole number of at least 1, not '8'"),
        ("partitions", True, "not True"),
        ("partitions", 129, "at most 128, not 129"),
        ("piece_rows", 1e5, "piece_rows of 'x' is a whole number of at least 1"),
        ("flush_seconds", "x", "flush_seconds of 'x' is a number of at least 0, not 'x'"),
        ("stop_seconds", -1, "stop_seconds of 'x' is a number of at least 0, not -1"),
        ("stop_seconds", float("nan"), "not nan"),
        ("upkeep_seconds", "hourly", "is a number above 0, or null for never"),
    ],
)
def test_numbers_that_cannot_be(setting: str, given: Any, hint: str) -> None:
    made = tailrace.pipeline("x", **{setting: given}).source("file", path="in").save("file", path="out")
    with pytest.raises(BadSetting, match=hint):
        made.definition()


def test_a_name_that_cannot_be() -> None:
    with pytest.raises(BadName, match="pipeline's name"):
        tailrace.pipeline("a b")


def test_no_secret_is_shown() -> None:
    made = tailrace.pipeline("x").source("postgres", uri="postgres://u:hunter2@h/d").save("file", path="hunter2")
    assert "hunter2" not in repr(made.definition())
    assert "hunter2" not in repr(made)


# -- files
TEXT = """
import tailrace
from tailrace.pipeline.functions import omit

def enrich(message):
    return message

pipeline = tailrace.pipeline("shop").source("file", path="in").transform(omit("a"), enrich).save("stdout")
"""


def test_a_pipeline_from_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TEXT)
    assert [type(f).__name__ for f in load(tmp_path / "shop.py").sinks[0].functions] == ["Omit", "Each"]
    (tmp_path / "done.py").write_text(TEXT + "pipeline = pipeline.definition()\n")
    assert load(str(tmp_path / "done.py")).name == "shop"


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("shop.py", "x = 1", "gives no pipeline the name `pipeline`"),
        (
            "shop.py",
            "import tailrace\npipeline = tailrace.pipeline('x').save('file')",
            "shop.py, line 2: BadSetting: .*no source",
        ),
        ("shop.py", "def f(:\n", "shop.py, line 1"),
        ("shop.py", "import no_such_module", "No module named 'no_such_module'"),
        ("shop.py", "import sys\nsys.exit(0)", "shop.py, line 2: SystemExit: 0"),
        ("shop.yaml", "", "ends in .py or .toml, not 'shop.yaml'"),
    ],
)
def test_a_file_without_a_pipeline(tmp_path: Path, name: str, text: str, hint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=hint):
        load(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no.py", "no.toml"):
        with pytest.raises(BadInput, match=f"there is no file .*{name}"):
            load(tmp_path / name)


def test_tailrace_pipeline_is_callable_whatever_was_imported_before() -> None:
    """`tailrace.pipeline` is a package, too; and nothing of this needs Spark before it runs."""
    for first in (
        "",
        "import tailrace.pipeline.define.definition; ",
        "from tailrace.pipeline.define.builder import pipeline; ",
    ):
        code = (
            f"{first}import tailrace; tailrace.pipeline('x').source('file'); import tailrace.pipeline.deliver.offsets"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
    code = "import tailrace, sys; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import tailrace, sys; tailrace.pipeline('x').source('file', path='a').save('stdout').definition()"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'pyspark' not in sys.modules"], check=True)
