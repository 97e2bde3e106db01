"""Homes: what can be opened, what cannot and why, and that no secret is ever told."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import tailrace
from tailrace.coordination import guard
from tailrace.errors import BadHome, BadInput, BadSetting, Closed, HomeError, TailraceError
from tailrace.home import Home, folder_of, s3_options, shown
from tailrace.home import store as stores
from tailrace.storage.calls import Store
from tailrace.storage.local.files import Files
from tailrace.storage.tables import Key, Set, Update
from tailrace.testing import SimulatedObjects, SimulatedTable

SECRET = "hunter2-wJalrXUtnFEMI"


# --- on disk
def test_a_file_url_with_options_is_refused() -> None:
    for url in ("file:///tmp/x?y=1", "file:///tmp/x#y"):
        with pytest.raises(BadHome, match="takes no options"):
            tailrace.open(url)


def test_a_folder_is_made_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "some" / "home"
    with tailrace.open(folder) as home:
        home.topic("t", 2).append([(b"k", b"v")])
        id = home.id
    assert oct(folder.stat().st_mode)[-3:] == "700", "for its owner alone"
    monkeypatch.chdir(tmp_path / "some")
    for same in (str(folder), f"file://{folder}", f"file://localhost{folder}", "home", "./home", Path("home")):
        with tailrace.open(same) as home:
            assert home.id == id
            assert [r.value for r in home.topic("t").records()] == [b"v"]
            assert repr(home) == f"Home({os.fspath(same)!r})"


def test_without_a_word_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tailrace.open().close()
    assert (tmp_path / ".tailrace" / "tailrace.db").exists()


def test_a_folder_with_odd_characters(tmp_path: Path) -> None:
    with tailrace.open(f"file://{tmp_path}/a%20b%3F%C3%A9") as home:
        home.topic("t", 1)
    assert (tmp_path / "a b?é" / "tailrace.db").exists()


def test_a_new_folder_is_durable_before_anything_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = Files.sync_folder
    monkeypatch.setattr(Files, "sync_folder", lambda self, folder: (synced.append(folder), real(self, folder))[1])
    tailrace.open(tmp_path / "a" / "b").close()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HomeError, match=r"file is a file; a home is a folder"):
        tailrace.open(tmp_path / "file")
    with pytest.raises(HomeError, match=r"cannot make the folder .*; choose another home, or its rights"):
        tailrace.open(tmp_path / "file" / "home")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["long", "null"])
def test_a_path_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises((HomeError, BadHome), match=r"cannot make the folder|cannot be a path"):
        tailrace.open(f"{tmp_path}/{name}")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that not even root may write to."""
    (tmp_path / "ro" / "home").mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path / "ro" / "home")])
    if done.returncode:
        pytest.skip("cannot mount here")
    yield tmp_path / "ro" / "home"
    subprocess.run(["umount", str(tmp_path / "ro" / "home")], check=True)


def test_a_folder_that_is_not_writable(read_only: Path) -> None:
    with pytest.raises(HomeError, match=rf"the folder {read_only} is not writable by this user; `chmod u\+wx"):
        tailrace.open(read_only)
    with pytest.raises(HomeError, match=r"cannot make the folder .*: Read-only file system; choose another home"):
        tailrace.open(read_only / "below")


def test_a_folder_one_may_not_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user than root sees it."""

    def stat(path: object, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(HomeError, match=r"cannot make the folder .*: Permission denied"):
        tailrace.open("/somewhere/else")


def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "tailrace.db").write_bytes(b"dear diary, " * 1000)
    with pytest.raises(HomeError, match=r"tailrace\.db is not a database; is this the path you meant\?"):
        tailrace.open(tmp_path)
    assert (tmp_path / "tailrace.db").read_bytes() == b"dear diary, " * 1000


def test_a_database_of_another_application(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "tailrace.db"))
    connection.execute("CREATE TABLE diary (entry)")
    connection.close()
    with pytest.raises(HomeError, match="another application"):
        tailrace.open(tmp_path)


def test_an_old_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.0")
    with pytest.raises(HomeError, match=r"SQLite 3\.46\.0 can corrupt .*pip install 'apsw>=3\.51\.3'"):
        tailrace.open(tmp_path / "home")


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_home_of_a_newer_tailrace(tmp_path: Path, kind: str) -> None:
    url = str(tmp_path / "home") if kind == "disk" else f"memory://{tmp_path.name}"
    with tailrace.open(url) as home:
        home.store.table.write(Update(Key("$Home"), (Set("format", 2),)))
    for _ in range(2):
        with pytest.raises(HomeError, match=r"was written by a newer tailrace \(format 2, this one knows 1\); upgrade"):
            tailrace.open(url)


def test_what_could_not_be_opened_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Store] = []
    real = stores._on_disk
    monkeypatch.setattr(stores, "_on_disk", lambda folder: (made.append(real(folder)), made[-1])[1])
    with tailrace.open(tmp_path) as home:
        home.store.table.write(Update(Key("$Home"), (Set("format", 9),)))
    with pytest.raises(HomeError):
        tailrace.open(tmp_path)
    with pytest.raises(Closed):
        made[-1].table.get(Key("$Home"))


def test_two_who_open_a_new_home_agree(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as one, tailrace.open(tmp_path) as two:
        assert one.id == two.id
        one.topic("t", 1).append([(b"k", b"v")])
        assert [r.value for r in two.topic("t").records()] == [b"v"]


# --- closing
def test_a_closed_home(tmp_path: Path) -> None:
    home = tailrace.open(tmp_path)
    topic = home.topic("t", 1)
    home.close()
    home.close()
    for ask in (home.topics, lambda: home.topic("t"), lambda: home.create_topic("u"), lambda: home.delete_topic("t")):
        with pytest.raises(Closed, match=f"the home {tmp_path} is closed"):
            ask()
    with pytest.raises(Closed):
        home.transaction(topic)
    with pytest.raises(Closed):
        topic.append([(b"k", b"v")])
    with pytest.raises(Closed):
        list(topic.records())


# --- in memory
def test_memory_with_a_name_is_shared_and_without_is_not() -> None:
    with tailrace.open("memory://") as one, tailrace.open("memory://") as two:
        assert one.id != two.id
    with tailrace.open("memory://test-home") as one, tailrace.open("memory://test-home") as two:
        assert one.id == two.id
    with tailrace.open("memory://test-home") as again:
        assert again.id == one.id


# --- URLs
@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("", BadHome, "a home's path is empty; the default is ./.tailrace"),
        ("file://", BadHome, "path is empty"),
        ("file://server/share", BadHome, "names the host 'server'; a folder of this machine is file:///path or ./path"),
        (
            "http://example.org/x",
            BadHome,
            "a home is a folder, file://…, memory:// or s3://bucket/prefix?table=NAME, not",
        ),
        ("S3://bucket?table=t", BadHome, "a home is a folder"),
        ("://x", BadHome, "a home is a folder"),
        ("s3://[bad", BadHome, "cannot be a URL"),
        ("s3://bucket/prefix", BadHome, "names no DynamoDB table; write s3://bucket/prefix?table=NAME"),
        ("s3://bucket/prefix?table=", BadHome, "names no DynamoDB table"),
        ("s3:///prefix?table=t", BadHome, "names its bucket"),
        ("s3://?table=t", BadHome, "names its bucket"),
        ("s3://bucket?tabel=t", BadSetting, "an s3:// home has no 'tabel'; did you mean 'table'?"),
        ("s3://bucket?table=t&x=1", BadSetting, "an s3:// home has no 'x'; there are: endpoint, region, table"),
        (f"s3://key:{SECRET}@bucket?table=t", BadHome, "never from the URL"),
        (f"s3://bucket?table=t&endpoint=http://k:{SECRET}@h", BadHome, "never from the URL"),
    ],
)
def test_urls_that_are_none(url: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as refused:
        tailrace.open(url)
    assert says in str(refused.value)
    assert isinstance(refused.value, BadInput)
    assert SECRET not in told(refused.value)


def test_urls_that_are() -> None:
    assert s3_options("s3://b/p/q?table=t&region=r") == ("s3://b/p/q", {"table": "t", "region": "r"})
    assert folder_of("s3://b?table=t") is None
    assert folder_of("file:///a/b") == Path("/a/b")


# --- secrets
def told(error: BaseException) -> str:
    """Everything an error says, with all its causes, as a traceback shows it."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(getattr(error, "__dict__", ""))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://user:{SECRET}@bucket/p?table=t",
        f"gs://user:{SECRET}@bucket/p",
        f"postgres://u:{SECRET}@host/db",
        f"mysql://u:{SECRET}@x@host/db",
        f"file://u:{SECRET}@host/p",
        f"s3://bucket/p?table=t&secret={SECRET}",
        f"s3://bucket/p?aws_secret_access_key={SECRET}",
        f"gs://bucket/p?token={SECRET}#{SECRET}",
        f"s3://bucket/p?table=t#{SECRET}",
        f"s3://bucket/p?table=t&endpoint=http://u:{SECRET}@127.0.0.1:1",
        f"s3://bucket/p?table=t&table_endpoint=http://u:{SECRET}@127.0.0.1:1",
        f"s3://[{SECRET}",
    ],
)
def test_no_error_repeats_a_secret_of_the_url(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    caplog.set_level(logging.DEBUG)
    with pytest.raises(TailraceError) as refused:
        tailrace.open(url)
    assert SECRET not in _without_source(told(refused.value))
    assert SECRET not in caplog.text
    if "[" not in url:
        assert SECRET not in shown(url)


def _without_source(text: str) -> str:
    """A traceback quotes the lines of this file; what matters is what the messages say."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def test_no_error_repeats_a_secret_of_the_environment(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers at the endpoints: the connection fails, with credentials at hand."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET + "-token")
    monkeypatch.setattr("tailrace.coordination.guard.PATIENCE", 0.0)
    monkeypatch.setattr(guard.persist, "__defaults__", (guard.persist.__defaults__[0], 0.0))  # type: ignore[index]
    caplog.set_level(logging.INFO)
    url = "s3://bucket/p?table=t&region=us-east-1&endpoint=http://127.0.0.1:1&table_endpoint=http://127.0.0.1:1"
    with pytest.raises(TailraceError) as refused:
        tailrace.open(url)
    assert "cannot connect" in str(refused.value)
    assert SECRET not in _without_source(told(refused.value))
    assert SECRET not in caplog.text


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(HomeError, match=r"no AWS credentials|no usable AWS credentials"):
        tailrace.open("s3://bucket/p?table=t&region=us-east-1")
    with pytest.raises(
        HomeError, match="no AWS region is set; set AWS_REGION, or write `region=…` into the home's URL"
    ):
        tailrace.open("s3://bucket/p?table=t")


def test_an_open_home_shows_no_secret() -> None:
    home = Home(
        shown(f"s3://u:{SECRET}@b/p?table=t&endpoint=http://u:{SECRET}@h"), Store(SimulatedTable(), SimulatedObjects())
    )
    assert SECRET not in repr(home) + home.url
    assert home.url == "s3://b/p?table=t&endpoint=http://h"
