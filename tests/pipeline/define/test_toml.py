"""Pipelines as TOML: the same as in Python; what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import BadInput, BadSetting
from tailrace.pipeline.define.builder import load
from tailrace.pipeline.define.toml import parse_toml
from tailrace.pipeline.functions import omit, skip

GOOD = r"""
name = "shop"            # 2
home = "./data"
partitions = 4

[source]                 # 6
adaptor = "file"
path = "${IN}"
namespace = '^public\.'

[[branch]]               # 11
namespace = 'orders$'
functions = [
    {omit = "card_number"},
    {skip = ["count", "<=", 10]},
]
save = {adaptor = "stdout", format = "pretty", on_error = "skip"}

[[branch]]               # 19
[branch.save]
adaptor = "file"
path = "./out"           # 22
name = "lake"
format = "parquet"
"""


def test_the_same_as_in_python() -> None:
    made = (
        tailrace.pipeline("shop", home="./data", partitions=4)
        .source("file", path="${IN}", namespace=r"^public\.")
        .branch("orders$").transform(omit("card_number"), skip("count", "<=", 10))
        .save("stdout", format="pretty", on_error="skip")
        .branch().save("file", path="./out", name="lake", format="parquet")
        .definition()
    )  # fmt: skip
    assert parse_toml(GOOD) == made


@pytest.mark.parametrize(
    ("old", "new", "line", "hint"),
    [
        ('name = "shop" ', 'nam = "shop" ', 2, "a pipeline has no 'nam'; did you mean 'name'"),
        ('name = "shop" ', 'name = "s p" ', 2, "cannot be a pipeline's name"),
        ('name = "shop" ', "name = 5 ", 2, "'name' is text, not a number"),
        ('home = "./data"', "home = 5", 3, "'home' is text, not a number"),
        ("partitions = 4", "compact_by = 4", 2, "compact_by of 'shop' has no '4'; there are: document, namespace"),
        ("partitions = 4", "partitons = 4", 4, "did you mean 'partitions'"),
        ("[source]", "[sourc]", 6, "a pipeline has no 'sourc'; did you mean 'source'"),
        ('adaptor = "file"\npath = "${IN}"', 'path = "${IN}"', 6, "the source needs 'adaptor'"),
        ('adaptor = "file"\npath = "${IN}"', 'adaptor = "fil"', 7, "tailrace has no 'fil'; did you mean 'file'"),
        ('path = "${IN}"', 'pth = "${IN}"', 8, "the source 'file' has no 'pth'; did you mean 'path'"),
        ('path = "${IN}"\n', "", 6, "the source 'file' needs 'path'"),
        ('path = "${IN}"', "path = 7", 8, "'path': Expected `str`"),
        ("'^public\\.'", "'('", 9, "not a regular expression"),
        ("'^public\\.'", "9", 9, "the source: the namespace is a regular expression, as text, not int"),
        ("'orders$'", "'['", 12, "a branch: the namespace"),
        ("'orders$'", "['a']", 12, "a branch: the namespace is a regular expression, as text, not list"),
        (
            '{omit = "card_number"}',
            "{remap = 5}",
            13,
            "remap takes patterns with their replacements, as a table, not int",
        ),
        ("namespace = 'orders$'", "namespac = 'orders$'", 12, "a branch has no 'namespac'; did you mean 'namespace'"),
        ('{omit = "card_number"}', '{omti = "card_number"}', 13, "functions has no 'omti'; did you mean 'omit'"),
        ('"<="', '"!="', 13, "skip has no operator '!='"),
        ('"<="', '"file:no.py:f"', 13, "skip has no operator"),
        ('{omit = "card_number"}', '"file:no.py:f"', 13, "there is no file"),
        ('adaptor = "stdout"', 'adaptor = "nowhere"', 17, "has no 'nowhere'"),
        ('format = "pretty"', 'format = "prety"', 17, "'format': Invalid enum value 'prety'"),
        ('on_error = "skip"', 'on_eror = "skip"', 17, "the sink 'stdout' has no 'on_eror'; there are: format"),
        ('on_error = "skip"', "on_error = 5", 2, "on_error of the writer 'stdout' has no '5'; there are: dead_letter"),
        ('path = "./out" ', 'paht = "./out" ', 22, "the sink 'file' has no 'paht'; did you mean 'path'"),
        ('name = "lake"', 'name = "la ke"', 2, "writer's name"),
        ('format = "parquet"', 'format = "orc"', 24, "'format': Invalid enum value 'orc'"),
        ("[branch.save]", "[branch.sve]", 20, "a branch has no 'sve'; did you mean 'save'"),
        (
            'adaptor = "file"\npath = "./out"',
            'adaptor = "stdout"\npath = "./out"',
            22,
            "the sink 'stdout' has no 'path'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, hint: str) -> None:
    assert old in GOOD
    with pytest.raises(BadSetting) as told:
        parse_toml(GOOD.replace(old, new), "shop.toml")
    assert str(told.value).startswith(f"shop.toml, line {line}: ")
    assert hint in str(told.value)


@pytest.mark.parametrize(
    "text",
    ['source = "{}"\nbranch = []', '[source]\nadaptor = "{}"\n[[branch]]', '[source]\nadaptor = ["{}"]\n[[branch]]'],
)
def test_a_uri_in_the_wrong_place_is_not_printed(text: str) -> None:
    with pytest.raises(BadSetting) as told:
        parse_toml('name = "x"\n' + text.format("postgresql://u:hunter2@h/d"))
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("branch", "line", "hint"),
    [
        ("branch = [1]", 2, "a branch is a table, not a number"),
        ("branch = 1", 2, "'branch' is an array, not a number"),
        ("branch = [{functions = 3, save = {adaptor = 'stdout'}}]", 2, "'functions' is an array, not a number"),
        ("branch = [{functions = 'omit', save = {adaptor = 'stdout'}}]", 2, "'functions' is an array, not text"),
        ("branch = [{save = 3}]", 2, "'save' is a table, not a number"),
    ],
)
def test_a_branch_of_the_wrong_kind(branch: str, line: int, hint: str) -> None:
    with pytest.raises(BadSetting, match=f"shop.toml, line {line}: {hint}"):
        parse_toml(f'name = "x"\n{branch}\n[source]\nadaptor = "file"\npath = "a"\n', "shop.toml")


def test_a_reader_that_is_only_a_writer() -> None:
    text = 'name = "x"\n[source]\nadaptor = "stdout"\n[[branch]]\nsave = {adaptor = "stdout"}\n'
    with pytest.raises(BadSetting, match=r"line 3: 'stdout' cannot be read from; `tailrace about stdout`"):
        parse_toml(text)


def test_what_is_not_toml(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"pipeline.toml: .*line 2, column 7"):
        parse_toml('name = "x"\nhome =\n')
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"bad.toml cannot be read"):
        load(tmp_path / "bad.toml")


@pytest.mark.parametrize("missing", ["name", "source", "branch"])
def test_what_is_missing(missing: str) -> None:
    parts = {
        "name": 'name = "x"\n',
        "source": '[source]\nadaptor = "file"\npath = "a"\n',
        "branch": "[[branch]]\nsave = {adaptor = 'stdout'}\n",
    }
    del parts[missing]
    with pytest.raises(BadSetting, match=f"line 1: a pipeline needs '{missing}'"):
        parse_toml("".join(parts.values()))


def test_functions_are_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(message):\n    return None\n")
    text = GOOD.replace('{omit = "card_number"}', '"file:mine.py:f"')
    (tmp_path / "shop.toml").write_text(text)
    assert load(tmp_path / "shop.toml").sinks[0].functions[0].function.__name__ == "f"  # type: ignore[attr-defined]
