"""`tailrace home`: create and info, on disk and on S3 and DynamoDB."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path

import pytest

from tests.cli.runs import Cli
from tests.servers.aws import new_bucket, new_table
from tests.servers.process import Server


def test_copying_the_home_that_the_option_names(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders")
    away = Cli(tmp_path / "nowhere")
    away("home", "copy", tmp_path / "one", "--home", cli.home)
    away("--home", cli.home, "home", "copy", tmp_path / "two")
    cli("home", "copy", tmp_path / "three")
    away("home", "copy", cli.home, tmp_path / "four")
    for name in ("one", "two", "three", "four"):
        assert cli("topic", "list", "--home", tmp_path / name, "--json").json[0]["name"] == "orders"
    refused = away.fails("home", "copy", cli.home, tmp_path / "five", "--home", tmp_path / "one").err
    assert "--home says" in refused
    assert "takes FROM and TO, not 3 places" in cli.fails("home", "copy", "a", "b", "c").err


def test_create_on_disk(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    assert cli("home", "create", folder).out == f"the home {folder} is ready: 0 topics\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    cli("topic", "create", "orders", "--home", folder)
    again = cli("home", "create", f"file://{folder}", "--json").json
    assert (again["topics"], again["format"]) == (1, 1)
    assert cli("home", "create", "--home", folder, "--json").json["id"] == again["id"]


def test_info(cli: Cli) -> None:
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="x" * 100_000 + "\n")
    about = cli("home", "info", "--json").json
    assert {*about} == {"url", "id", "format", "topics", "groups", "objects", "database_bytes"}
    assert about["objects"]["count"] == 1
    assert about["objects"]["bytes"] > 100_000
    assert about["database_bytes"] > 0
    assert ["topics", "1"] in cli("home", "info").rows
    assert ["objects", "1,", "98.3", "KiB"] in cli("home", "info").rows
    assert "objects" not in cli("home", "info", "--no-size", "--json").json


def test_what_is_no_home(cli: Cli) -> None:
    assert "there is no home in" in cli.fails("home", "info").err
    assert "names no DynamoDB table; write s3://bucket/prefix?table=NAME" in cli.fails("home", "create", "s3://b/p").err
    err = cli.fails("home", "create", "s3://b/p?tabel=x").err
    assert "an s3:// home has no 'tabel'; did you mean 'table'?" in err
    assert "a home is a folder" in cli.fails("home", "create", "gopher://x").err


@pytest.fixture
def s3(seaweedfs: Server, dynoxide: Server) -> Cli:
    """The command line with credentials, its home in a bucket that is there and a table that is not."""
    table, bucket = f"tailrace-{uuid.uuid4().hex}", new_bucket(seaweedfs)
    query = f"table={table}&region=us-east-1&endpoint={seaweedfs.url}&table_endpoint={dynoxide.url}"
    return Cli(f"s3://{bucket}/home?{query}")


def keys(server: Server) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret}


@pytest.mark.server
def test_create_on_s3_and_use_it(s3: Cli, seaweedfs: Server) -> None:
    env = keys(seaweedfs)
    err = s3.fails("topic", "list", **env).err
    assert "there is no table" in err
    assert "tailrace home create s3://" in err
    assert s3("home", "create", **env).out.endswith("is ready: 0 topics\n")
    assert s3("home", "create", s3.home, **env).out.endswith("is ready: 0 topics\n")
    s3("topic", "create", "orders", **env)
    s3("topic", "append", "orders", input="a\nb\n", **env)
    assert [record["value"] for record in s3("topic", "read", "orders", "--json", **env).json] == ["a", "b"]
    assert "objects" not in s3("home", "info", "--json", **env).json
    assert s3("home", "info", "--size", "--json", **env).json["objects"] == {"count": 0, "bytes": 0}
    checks = {one["name"]: one for one in s3("doctor", "--json", **env).json}
    assert (checks["home"]["level"], checks["aws"]["level"]) == ("ok", "ok")
    assert checks["aws"]["found"] == "credentials from env"
    assert seaweedfs.secret not in s3("doctor", **env).out


@pytest.mark.server
def test_a_missing_bucket_says_how_to_make_it(s3: Cli, seaweedfs: Server) -> None:
    bucket = str(s3.home).split("/")[2]
    missing = Cli(str(s3.home).replace(bucket, "tailrace-missing"))
    err = missing.fails("home", "create", **keys(seaweedfs)).err
    assert (
        "there is no bucket for s3://tailrace-missing/home; make it (on S3: `aws s3 mb s3://tailrace-missing`)" in err
    )
    assert "there is no table" in s3.fails("topic", "list", **keys(seaweedfs)).err, "no table before its bucket"


@pytest.mark.server
def test_a_missing_bucket_is_known_before_the_first_record(seaweedfs: Server, dynoxide: Server) -> None:
    """Also where the table is there, and nothing of this home is in it yet."""
    query = f"table={new_table(dynoxide)}&region=us-east-1&endpoint={seaweedfs.url}&table_endpoint={dynoxide.url}"
    missing = Cli(f"s3://tailrace-missing/home?{query}")
    err = missing.fails("topic", "create", "orders", **keys(seaweedfs)).err
    assert "there is no bucket for s3://tailrace-missing/home" in err
    assert "`aws s3 mb s3://tailrace-missing`" in err
