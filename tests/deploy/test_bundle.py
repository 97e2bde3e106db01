"""The bundles of the functions: their sizes are told, they run without Spark, and the indexer's without Arrow."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

from tests.servers.environment import ROOT

IMPORT = """
import sys, time

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "pyspark", "obstore", "apsw", "brotli", "typer", "rich"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
began = time.process_time()
import tailrace.lambdas.indexer as indexer
print(time.process_time() - began, indexer.__file__)
indexer.of_environment({"TAILRACE_TABLE": "t"})
assert not [name for name in sys.modules if name.partition(".")[0] in ("pyarrow", "pyspark")]
"""


def test_its_size_is_told_and_small(indexer_bundle: tuple[Path, str]) -> None:
    told = re.fullmatch(r"indexer: ([\d.]+) MiB, ([\d.]+) MiB zipped, in .*\n", indexer_bundle[1])
    assert told, indexer_bundle[1]
    assert float(told[1]) < 20
    assert float(told[2]) < 6


def test_it_has_only_what_the_indexer_needs(indexer_bundle: tuple[Path, str]) -> None:
    found = {path.name for path in indexer_bundle[0].iterdir()}
    assert {"tailrace", "boto3", "botocore", "msgspec", "crc32c"} <= found
    assert not {"pyarrow", "pyspark", "obstore", "apsw"} & found


def test_its_import_takes_less_than_a_second_without_arrow_and_spark(indexer_bundle: tuple[Path, str]) -> None:
    """In CPU time, the best of three: the machine that runs this may be busy with something else."""
    took = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-S", "-c", IMPORT],
            env={"PYTHONPATH": str(indexer_bundle[0]), "AWS_REGION": "us-east-1"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        seconds, where = done.stdout.split()
        assert where.startswith(str(indexer_bundle[0]))
        took.append(float(seconds))
    assert min(took) < 1.0


CONSUME = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "apsw", "brotli", "typer", "rich"):
            raise ModuleNotFoundError(name)

class Context:
    invoked_function_arn = "arn"
    def get_remaining_time_in_millis(self):
        return 60_000

sys.meta_path.insert(0, Absent())
import tailrace.lambdas.consumer as consumer
names = {"HOME": "memory://", "TOPIC": "orders", "GROUP": "mailer", "HANDLER": "shop:mail"}
function = consumer.of_environment({f"TAILRACE_{name}": value for name, value in names.items()})
function.home.topic("orders", 1).append([(b"key", b"value")] * 3)
print(function.consume({}, Context()), consumer.__file__)
"""


def test_the_consumer_runs_with_what_its_bundle_leaves_of_each_package(tmp_path: Path) -> None:
    """The packages of its lock as they are installed here: linked, not downloaded, and trimmed as in a bundle."""
    lock = (ROOT / "requirements" / "lambda-consumer.txt").read_text()
    for package in re.findall(r"^([\w-]+)==", lock, re.MULTILINE):
        for file in files(package) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                _linked(Path(str(file.locate())), tmp_path / file)
    shutil.copytree(ROOT / "src" / "tailrace", tmp_path / "tailrace", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "shop.py").write_text("def mail(record):\n    pass\n")
    runpy.run_path(str(ROOT / "deploy" / "aws" / "bundle.py"))["_trim"](tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", CONSUME], env={"PYTHONPATH": str(tmp_path), "AWS_REGION": "us-east-1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{{'records': 3, 'caught_up': True}} {tmp_path}/tailrace/lambdas/consumer.py\n"


def _linked(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy(source, target)


def test_a_consumer_without_code_is_refused() -> None:
    command = [sys.executable, "deploy/aws/bundle.py", "consumer"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "a consumer needs --code" in done.stderr
