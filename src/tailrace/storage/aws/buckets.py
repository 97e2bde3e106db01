"""Objects in a bucket: S3 and what speaks its protocol, GCS, Azure, or this process's memory, through obstore."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import boto3
import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import BaseError
from obstore.store import MemoryStore, S3Store, from_url

from tailrace.errors import BadHome, Closed, HomeError, ObjectMissing, TailraceError, TimedOut
from tailrace.storage import forks
from tailrace.storage.aws.bucket_errors import only_whole, translated
from tailrace.storage.aws.session import region_of
from tailrace.storage.objects import Bytes, ObjectInfo
from tailrace.storage.spans import cut, joined

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Views: TypeAlias = list[memoryview]
Spans: TypeAlias = list[tuple[int, int]]
Names: TypeAlias = list[str]

NAMES_PER_REQUEST = 1000
"""Names in a page of a listing, and in a request to delete, on S3."""


class BucketObjects:
    """The `Objects` of a bucket.  `where` is its URL, for messages.

    obstore retries by itself: a name is used once, so a put that happened twice has put the same bytes."""

    def __init__(self, store: ObjectStore, where: str) -> None:
        self._store, self._where = store, where
        self._lock = threading.Lock()
        self._closed = False
        self.requests: Counter[str] = Counter()
        """How often put, get, list and delete were asked of the bucket; obstore's retries are not counted."""

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before."""
        with self._asking("put", name):
            # In one request, since a crash between several leaves bytes that no listing shows.
            obstore.put(self._store, name, self._own(parts), use_multipart=False)

    def get(self, name: str) -> memoryview:
        """All bytes of an object, as the bucket sent them."""
        with self._asking("get", name):
            found = obstore.get(self._store, name)
            if found.meta["e_tag"] is None:
                raise TimedOut(f"{self._where}, object {name!r}: answered without an ETag, so not by a bucket")
            return memoryview(found.bytes())

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Views:
        """The bytes of several (position, length) ranges of one object; those near each other in one request."""
        spans = joined(ranges)
        found = self._get_spans(name, spans) if spans else []
        return [cut(spans, found, position, length) for position, length in ranges]

    def _get_spans(self, name: str, spans: Spans) -> Views:
        starts, ends = zip(*spans, strict=True)
        with self._asking("get", name, len(spans)):
            try:
                # Not joined by obstore, which panics if the object is shorter than a range of it.
                found = obstore.get_ranges(self._store, name, starts=starts, ends=ends, coalesce=0)
                return [memoryview(span) for span in found]
            except BaseError as error:
                if not only_whole(error):
                    raise
        whole = self.get(name)
        return [whole[start:end] for start, end in spans]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects in a folder and in the folders below it."""
        with self._asking("list", prefix):
            pages = obstore.list(self._store, prefix or None, chunk_size=NAMES_PER_REQUEST)
        return self._listed(pages, prefix)

    def _listed(self, pages: Any, prefix: str) -> Iterator[ObjectInfo]:
        first = True
        while True:
            with self._asking("list", prefix, 0):
                page = next(pages, None)
            if page is None:
                return
            self._count("list", 0 if first else 1)
            first = False
            for found in page:
                yield ObjectInfo(found["path"], found["size"])

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing one is no error."""
        doomed = [*names]
        for start in range(0, len(doomed), NAMES_PER_REQUEST):
            self._delete(doomed[start : start + NAMES_PER_REQUEST])

    def _delete(self, names: Names) -> None:
        try:
            with self._asking("delete", names[0]):
                obstore.delete(self._store, names)
        except ObjectMissing:
            # GCS and Azure report a missing object, perhaps before they have deleted the others.
            for name in names if len(names) > 1 else ():
                self._delete([name])

    def close(self) -> None:
        """Calls after this raise `Closed`; bytes already returned stay valid."""
        self._closed = True

    def _own(self, parts: Sequence[Bytes]) -> Sequence[Bytes]:
        """Parts in the form that obstore takes, without a copy; memory gets a copy, since it would keep the caller's
        own buffers."""
        if isinstance(self._store, MemoryStore):
            return [b"".join(parts)]
        return [part if isinstance(part, bytes) else memoryview(part).cast("B") for part in parts]

    @contextlib.contextmanager
    def _asking(self, kind: str, name: str, count: int = 1) -> Iterator[None]:
        if self._closed:
            raise Closed(f"{self._where} was closed")
        self._count(kind, count)
        try:
            yield
        except TailraceError:
            raise
        except (BaseError, OSError, ValueError) as error:
            # obstore's text has everything it knows, including a request's headers.
            raise translated(error, self._where, name) from None

    def _count(self, kind: str, count: int) -> None:
        with self._lock:
            self.requests[kind] += count


def open_bucket(
    url: str,
    *,
    home: str = "",
    session: boto3.Session | None = None,
    region: str | None = None,
    endpoint: str | None = None,
    timeout: float = 30,
    retries: int = 4,
) -> BucketObjects:
    """The objects below `memory://`, `s3://bucket/prefix`, or a URL of GCS or Azure as obstore reads it.

    `home` is the URL that messages name.  `timeout` is for one request in seconds; obstore tries `retries` more times,
    for three times as long at most."""
    forks.check_threads()
    if url.startswith("memory:"):
        return BucketObjects(MemoryStore(), home or url)
    client: Any = {"connect_timeout": timedelta(seconds=min(timeout, 3)), "timeout": timedelta(seconds=timeout)}
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2}
    retry: Any = {"max_retries": retries, "retry_timeout": timedelta(seconds=3 * timeout), "backoff": backoff}
    try:
        if url.startswith("s3:"):
            return BucketObjects(_s3(url, session or boto3.Session(), region, endpoint, client, retry), home or url)
        return BucketObjects(from_url(url, client_options=client, retry_config=retry), home or url)
    except (BaseError, ValueError) as error:
        raise BadHome(f"cannot use {url!r} for objects: {str(error).splitlines()[0]}") from None


def _s3(url: str, session: boto3.Session, region: str | None, endpoint: str | None, client: Any, retry: Any) -> S3Store:
    parts = urlsplit(url)
    if session.get_credentials() is None:
        raise HomeError(f"{url}: no AWS credentials; `aws sts get-caller-identity` shows who you are")
    # Short, since boto3 may hand out credentials with only ten minutes left.
    provider = Boto3CredentialProvider(session, ttl=timedelta(minutes=5))
    config: Any = {"region": region or region_of(session) or "us-east-1"}
    if endpoint is not None:
        config["endpoint"] = endpoint
        client["allow_http"] = endpoint.startswith("http://")
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=provider,
    )
