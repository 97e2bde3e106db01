"""`tailrace init`, `about`, `test`: writing a pipeline, and what is said about one that cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runs import Cli

SHOP = """
import tailrace
from tailrace.pipeline.functions import omit

def doubled(message):
    message.data["n"] *= 2
    return message

pipeline = (
    tailrace.pipeline("shop", home="./home")
    .source("file", path="./in", keys=["id"]{source})
    .branch(namespace={namespace}).transform(omit("card"), doubled).save({save})
)
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    lines = [f'{{"id": {n}, "n": {n}, "card": "4111"}}\n' for n in range(12)]
    (tmp_path / "in" / "orders.jsonl").write_text("".join(lines))
    return Cli(tmp_path / "home")


def shop(source: str = "", namespace: str = "'orders'", save: str = "'file', path='./out'") -> str:
    Path("shop.py").write_text(SHOP.format(source=source, namespace=namespace, save=save))
    return "shop.py"


def test_ten_messages_through_the_functions(cli: Cli) -> None:
    found = cli("test", shop(), "--json").json
    assert found["file"][:2] == [
        {"namespace": "orders", "id": "0", "op": "insert", "data": {"id": 0, "n": 0}},
        {"namespace": "orders", "id": "1", "op": "insert", "data": {"id": 1, "n": 2}},
    ]
    ran = cli("test", shop())
    assert ran.out.startswith("file: 10 of 10 sampled messages would be written")
    assert "nothing was written" in ran.err
    assert sorted(path.name for path in Path().iterdir()) == ["in", "shop.py"], "not even an empty folder"
    cli("test", shop(save="'tailrace', home='./other', topic='all'"))
    assert sorted(path.name for path in Path().iterdir()) == ["in", "shop.py"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"namespace": "'orders('"}, "the namespace 'orders(' is not a regular expression"),
        ({"save": "'file', pth='./out'"}, "the sink 'file' has no 'pth'; did you mean 'path'?"),
        ({"save": "'fil', path='./out'"}, "tailrace has no 'fil'; did you mean 'file'?"),
        ({"save": "'file', path='${NO_SUCH}/out'"}, "path uses ${NO_SUCH}, which is not set; export NO_SUCH=…"),
        ({"save": "'file', path='./out', on_error='dead'"}, "has no 'dead'"),
        ({"save": "'file', path='./out', fill='kopy'"}, "has no 'kopy'; did you mean 'copy'?"),
        ({"save": "'file'"}, "the sink 'file' needs 'path'"),
        ({"source": ", format='csvv'"}, "the source 'file': Invalid enum value 'csvv'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cli: Cli, made: dict[str, str], told: str) -> None:
    assert told in cli.fails("test", shop(**made)).err


def test_a_typo_in_a_sink_is_told_though_the_source_is_not_there(cli: Cli) -> None:
    file = Path(shop(save="'file', path='./out', fromat='csv'"))
    file.write_text(file.read_text().replace("./in", "./nowhere"))
    assert "the sink 'file' has no 'fromat'; did you mean 'format'?" in cli.fails("test", file).err


def test_a_function_that_raises_is_told_with_its_message(cli: Cli) -> None:
    Path("in/orders.jsonl").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": null}\n')
    err = cli.fails("test", shop()).err
    assert "a function of the writer 'file' fails at orders, id 2: TypeError" in err


def test_a_namespace_that_matches_nothing(cli: Cli) -> None:
    err = cli.fails("test", shop(source=", namespace='^oders$'")).err
    assert "the namespace '^oders$' of the source matches nothing that is there; there are: orders" in err
    ran = cli("test", shop(namespace="'oders'"))
    assert "the namespace 'oders' of the writer 'file' matches nothing that is there; there are: orders" in ran.err
    Path("in/orders.jsonl").unlink()
    assert "matches nothing" not in cli("test", shop()).err


def test_a_setting_of_spark_that_is_none(cli: Cli) -> None:
    assert "--conf takes spark.NAME=VALUE, not 'memory'" in cli.fails("run", shop(), "--conf", "memory").err


def test_no_secret_is_printed(cli: Cli) -> None:
    uri = "postgresql://shop:hunter2@127.0.0.1:1/shop"
    err = cli.fails("test", shop(save="'postgres', uri='${WAREHOUSE}'"), WAREHOUSE=uri).err
    assert "PostgreSQL at 127.0.0.1:1" in err
    assert "hunter2" not in err


def test_a_file_to_start_from(cli: Cli) -> None:
    cli("init", "file", "file", "--file", "mine.py")
    text = Path("mine.py").read_text()
    compile(text, "mine.py", "exec")
    assert 'tailrace.pipeline("mine")' in text
    assert 'path="${SOURCE_PATH}",' in text
    assert "# format=" in text
    assert "the source 'file': path uses ${SOURCE_PATH}, which is not set" in cli.fails("test", "mine.py").err
    cli("test", "mine.py", SOURCE_PATH="./in", SINK_PATH="./out")
    assert "mine.py exists already" in cli.fails("init", "file", "file", "--file", "mine.py").err
    cli("init", "file", "stdout", "--file", "mine.py", "--force")
    assert "tailrace has no 'postgers'; did you mean 'postgres'?" in cli.fails("init", "postgers", "file").err


def test_the_file_that_init_writes_need_not_be_named(cli: Cli) -> None:
    for command in ("test", "run"):
        told = cli.fails(command).err
        assert "neither pipeline.py nor pipeline.toml; name the pipeline's file" in told
    cli("init", "file", "file")
    cli("test", SOURCE_PATH="./in", SINK_PATH="./out")
    Path("pipeline.toml").touch()
    assert "both pipeline.py and pipeline.toml" in cli.fails("test").err


def test_an_adaptor_that_cannot_be_that_end(cli: Cli) -> None:
    assert "'stdout' cannot be read from" in cli.fails("init", "stdout", "file").err
    assert not Path("pipeline.py").exists()


def test_a_name_that_would_hide_a_module_of_pythons(cli: Cli) -> None:
    for command in ("init", "file", "file", "--file", "copy.py"), ("test", "copy.py"), ("run", "copy.py"):
        Path("copy.py").unlink(missing_ok=True)
        if command[0] != "init":
            Path("copy.py").write_text(Path(shop()).read_text())
        assert "copy.py has the name of a module of Python's own" in cli.fails(*command).err
    assert Path("copy.py").exists()


def test_about(cli: Cli) -> None:
    found = {a["name"]: a for a in cli("about", "--json").json}
    assert {name: (a["reads"], a["follows"], a["guarantee"]) for name, a in found.items()} == {
        "delta": (False, False, "exactly once"),
        "dynamodb": (True, True, "exactly once"),
        "file": (True, True, "exactly once"),
        "http": (False, False, "at least once"),
        "kafka": (True, True, "exactly once"),
        "rabbitmq": (True, True, "at least once"),
        "mongodb": (True, True, "exactly once"),
        "mysql": (True, True, "exactly once"),
        "opensearch": (True, False, "idempotent by id"),
        "postgres": (True, True, "exactly once"),
        "stdout": (False, False, "at least once"),
        "tailrace": (True, True, "exactly once"),
    }
    settings = {s["name"]: s for s in cli("about", "file", "--json").json["settings"]["sink"]}
    assert settings["path"]["required"]
    assert (settings["keep"]["type"], settings["every"]["type"]) == ("'changes' | 'state'", "float | None")
    assert "as a source:" in cli("about", "file").out
