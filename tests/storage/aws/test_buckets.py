"""BucketObjects keeps the contract of objects on S3 servers and in memory, and says what obstore's errors mean."""

from __future__ import annotations

import socket
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from tailrace.errors import (
    BadHome,
    BadInput,
    Closed,
    HomeError,
    ObjectMissing,
    TailraceError,
    Throttled,
    TimedOut,
    Unavailable,
)
from tailrace.storage.aws.buckets import BucketObjects, open_bucket
from tailrace.testing.objectscontract import MEGABYTE, ObjectsContract
from tests.servers.aws import new_bucket, session_of
from tests.servers.canned import saying
from tests.servers.process import Server
from tests.servers.proxy import Fault, proxied

pytestmark = pytest.mark.server

SECRET = "do-not-show-me"


def opened(server: Server, bucket: str, **settings: Any) -> BucketObjects:
    return open_bucket(f"s3://{bucket}/home", **{"session": session_of(server), "endpoint": server.url, **settings})


@pytest.fixture(scope="module")
def seaweedfs_bucket(seaweedfs: Server) -> str:
    return new_bucket(seaweedfs)


@pytest.fixture(scope="module")
def rclone_bucket(rclone: Server) -> str:
    return new_bucket(rclone)


@pytest.fixture(scope="module")
def moto_bucket(moto: Server) -> str:
    return new_bucket(moto)


@pytest.fixture
def objects(seaweedfs: Server, seaweedfs_bucket: str) -> BucketObjects:
    return opened(seaweedfs, seaweedfs_bucket)


@pytest.fixture
def name() -> str:
    """An object name that no other test uses."""
    return f"tests/{uuid.uuid4().hex}"


class TestOnSeaweedFS(ObjectsContract):
    @pytest.fixture
    def objects(self, seaweedfs: Server, seaweedfs_bucket: str) -> BucketObjects:
        return opened(seaweedfs, seaweedfs_bucket)


class TestOnRclone(ObjectsContract):
    many = 20

    @pytest.fixture
    def objects(self, rclone: Server, rclone_bucket: str) -> BucketObjects:
        return opened(rclone, rclone_bucket)


class TestOnMoto(ObjectsContract):
    many = 20

    @pytest.fixture
    def objects(self, moto: Server, moto_bucket: str) -> BucketObjects:
        return opened(moto, moto_bucket)


class TestInMemory(ObjectsContract):
    @pytest.fixture
    def objects(self) -> BucketObjects:
        return open_bucket("memory://")


class TestOnLocalStore(ObjectsContract):
    """Not for a home, since it does not sync; but it says of a missing object what GCS and Azure say."""

    many = 20

    @pytest.fixture
    def objects(self, tmp_path: Path) -> BucketObjects:
        return BucketObjects(LocalStore(tmp_path), f"file://{tmp_path}")


class TestRequests:
    def test_near_ranges_are_one_request_and_far_ones_are_several(self, objects: BucketObjects, name: str) -> None:
        objects.put(name, [b"x" * (4 * MEGABYTE)])
        objects.get_ranges(name, [(0, 10), (1000, 10), (900_000, 10), (20, 5)])
        assert objects.requests == {"put": 1, "get": 1}
        objects.get_ranges(name, [(0, 10), (3 * MEGABYTE, 10)])
        assert objects.requests == {"put": 1, "get": 3}
        objects.get_ranges(name, [(5, 0)])
        objects.get_ranges(name, [])
        assert objects.requests == {"put": 1, "get": 3}

    def test_listing_and_deleting_are_counted_by_the_page(self) -> None:
        objects = open_bucket("memory://")
        for n in range(2500):
            objects.put(f"a/{n}", [b""])
        assert len(list(objects.list("a/"))) == 2500
        assert list(objects.list("b/")) == []
        objects.delete(f"a/{n}" for n in range(2500))
        assert objects.requests == {"put": 2500, "list": 4, "delete": 3}

    def test_bytes_come_without_a_copy(self, objects: BucketObjects, name: str) -> None:
        objects.put(name, [b"x" * 1000])
        assert isinstance(objects.get(name).obj, obstore.Bytes)
        one, two = objects.get_ranges(name, [(0, 10), (500, 10)])
        assert isinstance(one.obj, obstore.Bytes)
        assert one.obj is two.obj

    def test_a_prefix_keeps_homes_apart(self, seaweedfs: Server, seaweedfs_bucket: str, name: str) -> None:
        settings: Any = {"session": session_of(seaweedfs), "endpoint": seaweedfs.url}
        homes = [open_bucket(f"s3://{seaweedfs_bucket}/{prefix}", **settings) for prefix in ("one", "one/two/", "")]
        homes[0].put(name, [b"one"])
        with pytest.raises(ObjectMissing):
            homes[1].get(name)
        assert bytes(homes[2].get(f"one/{name}")) == b"one"


def winners(server: Server, bucket: str, name: str) -> int:
    """How many of 16 racing writers are told that they were the first to put an object."""
    keys = {"access_key_id": server.key, "secret_access_key": server.secret, "region": server.region}
    client, retry = {"allow_http": True}, {"max_retries": 0}
    store = S3Store(bucket, endpoint=server.url, client_options=client, retry_config=retry, **keys)  # type: ignore[call-overload]

    def race(worker: int) -> bool:
        try:
            obstore.put(store, name, str(worker).encode(), mode="create")
        except BaseError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(race, range(16)))


class TestWhyNamesAreNeverTheCommitPoint:
    def test_one_server_keeps_the_condition(self, seaweedfs: Server, seaweedfs_bucket: str, name: str) -> None:
        assert winners(seaweedfs, seaweedfs_bucket, name) == 1

    def test_another_ignores_it(self, rclone: Server, rclone_bucket: str, name: str) -> None:
        assert winners(rclone, rclone_bucket, name) > 1

    def test_and_all_forget_a_name_once_it_is_deleted(
        self, seaweedfs: Server, seaweedfs_bucket: str, objects: BucketObjects, name: str
    ) -> None:
        assert winners(seaweedfs, seaweedfs_bucket, f"home/{name}") == 1
        objects.delete([name])
        assert winners(seaweedfs, seaweedfs_bucket, f"home/{name}") == 1


class TestAnswersThatDoNotCome:
    @pytest.mark.parametrize("fault", ["cut_after", "reset_after"])
    def test_a_put_whose_answer_is_lost_has_landed(
        self, seaweedfs: Server, seaweedfs_bucket: str, objects: BucketObjects, name: str, fault: Fault
    ) -> None:
        with proxied(seaweedfs.url) as proxy, proxy.failing(fault):
            with pytest.raises(TimedOut):
                opened(seaweedfs, seaweedfs_bucket, endpoint=proxy.url, retries=0).put(name, [b"landed"])
            assert proxy.hit == 1
        assert bytes(objects.get(name)) == b"landed"

    @pytest.mark.parametrize("fault", ["cut_before", "reset_before", "cut_after", "reset_after"])
    def test_a_put_is_tried_again(
        self, seaweedfs: Server, seaweedfs_bucket: str, objects: BucketObjects, name: str, fault: Fault
    ) -> None:
        with proxied(seaweedfs.url) as proxy, proxy.failing(fault, times=2):
            opened(seaweedfs, seaweedfs_bucket, endpoint=proxy.url).put(name, [b"in ", b"the end"])
            assert proxy.hit == 2
        assert bytes(objects.get(name)) == b"in the end"

    def test_a_late_answer_is_no_answer(
        self, seaweedfs: Server, seaweedfs_bucket: str, objects: BucketObjects, name: str
    ) -> None:
        objects.put(name, [b"here"])
        with proxied(seaweedfs.url) as proxy, proxy.failing("delay", 2.0):
            late = opened(seaweedfs, seaweedfs_bucket, endpoint=proxy.url, retries=0, timeout=0.3)
            for call in (
                lambda: late.put(name + "-late", [b"x"]),
                lambda: late.get(name),
                lambda: late.get_ranges(name, [(0, 1)]),
                lambda: list(late.list("tests/")),
                lambda: late.delete([name + "-none"]),
            ):
                with pytest.raises(TimedOut):
                    call()

    def test_a_refused_connection(self, seaweedfs: Server, seaweedfs_bucket: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            url = f"http://127.0.0.1:{gone.getsockname()[1]}"
        nowhere = opened(seaweedfs, seaweedfs_bucket, endpoint=url, retries=1)
        for call in calls(nowhere):
            with pytest.raises(Unavailable, match="cannot connect"):
                call()


def calls(objects: BucketObjects) -> list[Callable[[], object]]:
    """One call of each kind."""
    return [
        lambda: objects.put("tests/object", [b"x"]),
        lambda: objects.get("tests/object"),
        lambda: objects.get_ranges("tests/object", [(0, 1)]),
        lambda: list(objects.list("tests/")),
        lambda: objects.delete(["tests/object"]),
    ]


def error_of(call: Callable[[], object]) -> TailraceError:
    """The error of a call, which must not show anything secret."""
    with pytest.raises(TailraceError) as caught:
        call()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


class TestHomes:
    def test_a_missing_bucket_says_how_to_make_it(self, seaweedfs: Server) -> None:
        home = "s3://tailrace-is-not-there/home?table=t"
        for call in calls(opened(seaweedfs, "tailrace-is-not-there", home=home)):
            error = error_of(call)
            assert type(error) is HomeError
            assert f"`tailrace home create {home}`" in str(error)

    def test_a_wrong_secret(self, seaweedfs: Server, seaweedfs_bucket: str) -> None:
        session = boto3.Session(seaweedfs.key, SECRET, region_name=seaweedfs.region)
        for call in calls(opened(seaweedfs, seaweedfs_bucket, session=session)):
            error = error_of(call)
            assert type(error) is HomeError
            assert "credentials" in str(error)

    def test_no_credentials(self, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(HomeError, match="credentials"):
            open_bucket("s3://bucket/home", endpoint=seaweedfs.url)

    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            (400, "<Error><Code>ExpiredToken</Code></Error>", HomeError),
            (403, "<Error><Code>InvalidAccessKeyId</Code></Error>", HomeError),
            (403, f"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>{SECRET}</StringToSign></Error>", HomeError),
            (403, "<Error><Code>AccessDenied</Code></Error>", HomeError),
            (301, "<Error><Code>PermanentRedirect</Code></Error>", HomeError),
            (404, "<Error><Code>NoSuchBucket</Code></Error>", HomeError),
            (503, "<Error><Code>SlowDown</Code></Error>", Throttled),
            (500, "<Error><Code>InternalError</Code></Error>", Unavailable),
        ],
    )
    def test_refusals(self, status: int, body: str, kind: type[TailraceError]) -> None:
        server = Server("canned", "", 0, secret=SECRET)
        with saying(lambda *_: (status, body.encode())) as url:
            for call in calls(opened(server, "bucket", endpoint=url, retries=0)):
                assert type(error_of(call)) is kind

    def test_a_url_that_nobody_understands(self) -> None:
        with pytest.raises(BadHome, match="ftp://"):
            open_bucket("ftp://bucket/home")

    @pytest.mark.parametrize("url", ["gs://bucket/home", "abfss://container@account.dfs.core.windows.net/home"])
    def test_other_clouds_can_be_opened(self, url: str) -> None:
        open_bucket(url).close()

    @pytest.mark.parametrize("bad", ["a//b", "a/../b"])
    def test_a_name_that_is_no_name(self, bad: str) -> None:
        objects = open_bucket("memory://")
        for call in (lambda: objects.put(bad, [b""]), lambda: objects.get(bad)):
            with pytest.raises(BadInput):
                call()

    def test_calls_after_close_are_refused(self) -> None:
        objects = open_bucket("memory://")
        objects.put("tests/object", [b"x"])
        kept = objects.get("tests/object")
        objects.close()
        for call in calls(objects):
            with pytest.raises(Closed):
                call()
        assert bytes(kept) == b"x"
