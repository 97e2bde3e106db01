"""Homes: where a tailrace lives, and what one can do there.

file:///path, ./path       a folder on this machine's disk (default ./.tailrace): SQLite and files
memory://, memory://name   this process's memory, for trying things and for tests
s3://bucket/prefix?table=NAME&region=…&endpoint=…&table_endpoint=…    S3 and DynamoDB

$Home, 0    format, id: written when a home is made
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadHome, BadSetting, Closed, HomeError, ObjectMissing, UnknownTopic
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.group import forget
from tailrace.log.settings import settings as check_settings
from tailrace.log.topic import Topic
from tailrace.log.transaction import Transaction
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Item, Key, Put

if TYPE_CHECKING:
    from tailrace.events.store import Events
    from tailrace.log.keeper import Background
    from tailrace.log.upkeep import Tended
    from tailrace.whole.copy import Copied
    from tailrace.whole.report import Report

FORMAT = 1
DEFAULT = "./.tailrace"
_HOME = Key("$Home")
_S3_OPTIONS = ("table", "region", "endpoint", "table_endpoint")
_memories: dict[str, Store] = {}


class Home:
    """An open home.  Close it, or use it in a `with` block; its topics may be used from any thread."""

    def __init__(self, url: str, store: Store) -> None:
        self.url, self.store = url, store
        self._closed = False
        self._keeping: list[Background] = []
        self.id: str = store.run(_settle_format(url))["id"]

    def __repr__(self) -> str:
        return f"Home({self.url!r})"

    # -- topics
    def topic(self, name: str, partitions: int | None = None, **settings: Any) -> Topic:
        """The topic of this name.  With `partitions` it is made if it is not there; a different count is refused."""
        self._check_open()
        if partitions is None and not settings:
            return Topic(self.store, self.store.run(catalog.describe(name)))
        if partitions is None:
            raise BadSetting(
                "settings are given when a topic is made, with partitions=…; topic.configure() changes them"
            )
        check_settings(settings)
        try:
            described = self.store.run(catalog.describe(name))
        except UnknownTopic:
            try:
                return self.create_topic(name, partitions, **settings)
            except AlreadyThere:  # made by another process just now
                described = self.store.run(catalog.describe(name))
        if described.partitions != catalog.check_partitions(partitions):
            more = described.partitions < partitions
            hint = f"`tailrace topic grow {name} {partitions}` adds some" if more else "it cannot have fewer"
            raise BadSetting(
                f"topic {name!r} has {described.partitions} partitions, not {partitions}; {hint}, or open it without a "
                "count"
            )
        _check_same(described, settings)
        return Topic(self.store, described)

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> Topic:
        """Make a topic; `AlreadyThere` if there is one of this name."""
        self._check_open()
        wall = int(time.time() * 1000)
        return Topic(self.store, self.store.run(catalog.create(name, partitions, settings, wall)))

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        self._check_open()
        return self.store.run(catalog.listing("$Topics"))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it.  It is gone at once; if this is cut off, the next call finishes it."""
        self._check_open()
        id = self.store.run(catalog.delete(name))
        self.store.run(catalog.purge())
        self.store.run(forget(id))

    def transaction(self, *topics: str | Topic) -> Transaction:
        """Records of several topics that become readable together: `with home.transaction("a", "b") as t`."""
        self._check_open()
        chosen = [self.topic(t) if isinstance(t, str) else t for t in topics]
        return Transaction(self.store, {t.name: (t.log, t.described) for t in chosen})

    # -- events
    def events(self, **settings: Any) -> Events:
        """The event store of this home: `home.events().stream("Cart-42")`.  See `Events` for the settings."""
        from tailrace.events.store import Events

        self._check_open()
        return Events(self.store, **settings)

    # -- the whole
    def scrub(
        self,
        topics: Iterable[str] | None = None,
        *,
        sample: float = 1.0,
        told: Callable[[int], object] = lambda _: None,
    ) -> Report:
        """Read everything again, or some topics, and compare it with what the table says; nothing is changed.

        `sample`: the part of the chunks, drawn at random, whose bytes are read.  `told` gets the bytes read so far."""
        from tailrace.whole.scrub import scrub

        self._check_open()
        return scrub(self.store, topics, sample=sample, told=told)

    def copy(self, to: str | os.PathLike[str], *, told: Callable[[int], object] = lambda _: None) -> Copied:
        """Copy this home, as it is now, to one that holds nothing yet, and scrub the copy.  One that was cut off goes
        on where it was when it is called again.  `told` gets the bytes copied so far."""
        from tailrace.whole.copy import copy

        self._check_open()
        url = os.fspath(to)
        target = store_of(url)
        try:
            return copy(self.store, target, self.id, shown(url) if "://" in url else url, told)
        finally:
            if not url.startswith("memory:"):
                target.close()

    # -- upkeep
    def upkeep(self, *topics: str, rate: float | None = None, wait: float = 15.0) -> list[Tended]:
        """Upkeep of these topics, or of all: retention, compaction, merging, cleaning; gives what was done to each.

        `rate`: bytes a second that it may write.  `Busy` if another process is at it for longer than `wait`."""
        from tailrace.log.keeper import Keeper, Pace

        self._check_open()
        return Keeper(self.store, Pace(rate)).run(topics, wait=wait)

    def start_upkeep(self, every: float = 3600.0, rate: float | None = None) -> Background:
        """Upkeep of all topics in the background, every so many seconds, until it is stopped or the home is closed."""
        from tailrace.log.keeper import Background, Keeper, Pace

        self._check_open()
        self._keeping.append(Background(Keeper(self.store, Pace(rate)), every))
        return self._keeping[-1]

    # -- life
    def close(self) -> None:
        """Give up files and connections.  What is acknowledged is durable with or without this."""
        if not self._closed:
            self._closed = True
            for background in self._keeping:
                background.stop()
            if not self.url.startswith("memory:"):
                self.store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the home {self.url} is closed")

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open(home: str | os.PathLike[str] = DEFAULT) -> Home:
    """Open a home; a local folder is made if it is not there.  See the module's docstring for what can be given."""
    url = os.fspath(home)
    store = store_of(url)
    if url.startswith("memory:"):
        return Home(url, store)
    return _opened(shown(url) if url.startswith("s3:") else url, store)


def store_of(url: str) -> Store:
    """The table and the objects of a home, whether it is one already or not."""
    kind, _, _ = url.partition("://")
    if (folder := folder_of(url)) is not None:
        return _on_disk(folder)
    if kind == "memory":
        return _in_memory(url)
    if kind == "s3":
        return _on_s3(url)
    raise BadHome(f"a home is a folder, file://…, memory:// or s3://bucket/prefix?table=NAME, not {shown(url)!r}")


def _opened(url: str, store: Store) -> Home:
    try:
        return Home(url, store)
    except BaseException:
        store.close()
        raise


def shown(url: str) -> str:
    """A home's URL without anything that could be a secret."""
    parts = _split(url)
    known = [(name, _bare(value)) for name, value in parse_qsl(parts.query) if name in _S3_OPTIONS]
    query = "&".join(f"{name}={value}" for name, value in known)
    return parts._replace(netloc=_bare(f"//{parts.netloc}")[2:], query=query, fragment="").geturl()


def _bare(url: str) -> str:
    """A URL without a user and a password."""
    parts = _split(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise BadHome(f"what was given cannot be a URL ({error}); a home is ./path or s3://…?table=NAME") from None


def _check_same(described: Described, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a topic was not made with: to look at it must not change it."""
    for name, wanted in settings.items():
        if (has := getattr(described.settings, name)) != wanted:
            raise BadSetting(
                f"topic {described.name!r} has {name}={has!r}, not {wanted!r}; open it without settings, or change "
                f"them with topic.configure({name}={wanted!r}) or `tailrace topic set {described.name} {name}={wanted}`"
            )


def _settle_format(url: str) -> Steps[Item]:
    """The home's own item, made by whoever opens it first; a newer format is refused."""

    def plan(item: Item | None) -> tuple[Put, ...] | None:
        if item is None:
            return (Put(_HOME, {"format": FORMAT, "id": secrets.token_hex(8)}, (Absent(),)),)
        if "copying" in item:
            raise HomeError(
                f"the home {url} is a copy that is not complete; run `tailrace home copy` again, with the same source"
            )
        if item["format"] > FORMAT:
            raise HomeError(
                f"the home {url} was written by a newer tailrace (format {item['format']}, this one knows {FORMAT}); "
                "upgrade: pip install -U tailrace"
            )
        return None

    if (yield from guard.read(_HOME)) is None:
        yield from _reach_objects()
    item = yield from guard.settle(_HOME, plan)
    assert item is not None
    return item


def _reach_objects() -> Steps[None]:
    """Before a home is made: a bucket that is not there is better known now than when the first record is large."""
    with suppress(ObjectMissing):
        yield from guard.persist(lambda: calls.get_object("home"), patience=5)


def folder_of(url: str) -> Path | None:
    """The folder that a home on this machine's disk lives in; None for other homes."""
    parts = _split(url) if "://" in url else SplitResult("", "", url, "", "")
    if "://" in url and parts.scheme != "file":
        return None
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise BadHome(
            f"{shown(url)!r} names the host {parts.hostname!r}; a folder of this machine is file:///path or ./path"
        )
    if not (path := unquote(parts.path) if parts.scheme == "file" else url):
        raise BadHome("a home's path is empty; the default is ./.tailrace")
    return Path(path)


def _on_disk(folder: Path) -> Store:
    from tailrace.storage.database import Database
    from tailrace.storage.disk import DiskObjects
    from tailrace.storage.sqlite import SqliteTable

    try:
        if folder.exists() and not folder.is_dir():
            raise HomeError(f"{folder} is a file; a home is a folder")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(
            f"cannot make the folder {folder}: {error.strerror}; choose another home, or its rights"
        ) from error
    except ValueError as error:
        raise BadHome(f"{str(folder)!r} cannot be a path: {error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise HomeError(
            f"the folder {folder} is not writable by this user; `chmod u+wx {folder}`, or choose another home"
        )
    return Store(SqliteTable(Database(folder / "tailrace.db")), DiskObjects(folder / "objects"))


def _in_memory(url: str) -> Store:
    from tailrace.testing.simulatedobjects import SimulatedObjects
    from tailrace.testing.simulatedtable import SimulatedTable

    name = url.removeprefix("memory://")
    if name in _memories:
        return _memories[name]
    store = Store(SimulatedTable(), SimulatedObjects())
    if name:
        _memories[name] = store
    return store


def s3_options(url: str) -> tuple[str, Mapping[str, str]]:
    """The bucket URL and the options of an s3:// home; a typo is refused with the nearest right name."""
    parts = _split(url)
    options = dict(parse_qsl(parts.query))
    for name in options:
        if name not in _S3_OPTIONS:
            raise BadSetting.unknown("an s3:// home", name, _S3_OPTIONS)
    inner = [_split(options.get(name, "")) for name in ("endpoint", "table_endpoint")]
    if not parts.netloc or parts.fragment or any("@" in some.netloc for some in (parts, *inner)):
        raise BadHome(
            "an s3:// home names its bucket, and takes credentials from the environment, a profile or a role, never "
            f"from the URL: s3://bucket/prefix?table=NAME, not {shown(url)!r}"
        )
    if not options.get("table"):
        raise BadHome(f"{shown(url)!r} names no DynamoDB table; write s3://bucket/prefix?table=NAME")
    return f"s3://{parts.netloc}{parts.path}", options


def _on_s3(url: str) -> Store:
    from tailrace.storage.buckets import open_bucket
    from tailrace.storage.dynamodb import open_table

    bucket, options = s3_options(url)
    region = options.get("region")
    home = shown(url)
    table = open_table(options["table"], home=home, region=region, endpoint=options.get("table_endpoint"))
    objects = open_bucket(bucket, home=home, region=region, endpoint=options.get("endpoint"))
    return Store(table, objects)
