"""Bundles: everything that one of the Lambda functions needs, in a folder that the CDK uploads.

    python deploy/aws/bundle.py indexer
    python deploy/aws/bundle.py consumer --code my_handlers/

The packages come from requirements/lambda-*.txt, by their hashes, for the processor and the Python of the function.
Of the AWS SDK only the services stay that the functions call; of Arrow not what serves C++, Flight and tests.  (Each
of Arrow's own modules is linked to libarrow_substrait, so that library stays.)
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = HERE / "build"
PLATFORMS = {"arm64": "manylinux_2_28_aarch64", "x86_64": "manylinux_2_28_x86_64"}
OLDER = {"arm64": "manylinux2014_aarch64", "x86_64": "manylinux2014_x86_64"}
MAX_UNZIPPED = 250 * 2**20
"""What Lambda takes, unzipped."""
SERVICES = {"dynamodb", "dynamodbstreams", "lambda", "sts"}
UNUSED = (
    "**/__pycache__",
    "bin",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/tests",
    "pyarrow/includes",
    "pyarrow/*flight*",
    "pyarrow/_substrait*",
    "pyarrow/substrait*",
    "pyarrow/*.py[xd]*",
    "pyarrow/*.p[xd][id]",
    "boto3/examples",
)


def build(function: str, out: Path, *, python: str, machine: str, code: Path | None = None) -> None:
    """Put the function's packages, tailrace and, for a consumer, your code into an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lock = ROOT / "requirements" / f"lambda-{function}.txt"
    platforms = [f"--platform={names[machine]}" for names in (PLATFORMS, OLDER)]
    wheels = [*platforms, f"--python-version={python}", "--only-binary=:all:", "--no-compile"]
    where = ["--target", str(out), "--require-hashes", "-r", str(lock)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *wheels, *where], check=True)
    shutil.copytree(ROOT / "src" / "tailrace", out / "tailrace", ignore=shutil.ignore_patterns("__pycache__"))
    if code is not None:
        shutil.copytree(code, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    _trim(out)


def _trim(out: Path) -> None:
    for path in (path for pattern in UNUSED for path in list(out.glob(pattern))):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for service in (out / "botocore" / "data").iterdir():
        if service.is_dir() and service.name not in SERVICES:
            shutil.rmtree(service)


def sizes(out: Path) -> tuple[int, int]:
    """The bytes of a bundle, unzipped and zipped."""
    archive = out.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in _files(out):
            zipped.write(path, path.relative_to(out))
    return sum(path.stat().st_size for path in _files(out)), archive.stat().st_size


def _files(out: Path) -> Iterator[Path]:
    return (path for path in sorted(out.rglob("*")) if path.is_file())


def main() -> None:
    """Build one bundle, and print its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("function", choices=["indexer", "consumer"])
    parser.add_argument("--code", type=Path, help="a folder with the module of your handler, for the consumer")
    parser.add_argument("--out", type=Path, help="where to build it (deploy/aws/build/FUNCTION)")
    parser.add_argument("--python", default="3.13", help="the function's Python (3.13)")
    parser.add_argument("--machine", default="arm64", choices=sorted(PLATFORMS), help="its processor (arm64)")
    given = parser.parse_args()
    if given.function == "consumer" and (given.code is None or not given.code.is_dir()):
        parser.error("a consumer needs --code: a folder with the module of your handler")
    out = given.out or BUILD / given.function
    build(given.function, out, python=given.python, machine=given.machine, code=given.code)
    unzipped, zipped = sizes(out)
    print(f"{given.function}: {unzipped / 2**20:.1f} MiB, {zipped / 2**20:.1f} MiB zipped, in {out}")
    if unzipped > MAX_UNZIPPED:
        sys.exit(f"that is more than Lambda takes: {MAX_UNZIPPED // 2**20} MiB unzipped")


if __name__ == "__main__":
    main()
