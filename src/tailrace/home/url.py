"""Home URLs: how they are parsed, and how they are shown without secrets.

file:///path, ./path       a folder on this machine's disk (default ./.tailrace): SQLite and files
memory://, memory://name   this process's memory, for experiments and tests
s3://bucket/prefix?table=NAME&region=…&endpoint=…&table_endpoint=…    S3 and DynamoDB
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tailrace.errors import BadHome, BadSetting

DEFAULT = "./.tailrace"
"""The home where a command or program names none."""
DATABASE = "tailrace.db"
"""The file in a home's folder that has its table."""
_S3_OPTIONS = ("table", "region", "endpoint", "table_endpoint")


def shown(url: str) -> str:
    """A home's URL without user, password, unknown options and fragment, which could be secret."""
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


def folder_of(url: str) -> Path | None:
    """The folder of a home on this machine's disk; None for other homes."""
    parts = _split(url) if "://" in url else SplitResult("", "", url, "", "")
    if "://" in url and parts.scheme != "file":
        return None
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise BadHome(
            f"{shown(url)!r} names the host {parts.hostname!r}; a folder of this machine is file:///path or ./path"
        )
    if parts.scheme == "file" and (parts.query or parts.fragment):
        raise BadHome(
            f"{shown(url)!r} has something after its path, and a file:// home takes no options; in the folder's name "
            "write ? as %3F and # as %23, or give the folder without file://"
        )
    if not (path := unquote(parts.path) if parts.scheme == "file" else url):
        raise BadHome("a home's path is empty; the default is ./.tailrace")
    return Path(path)


def is_there(url: str) -> bool:
    """Whether a folder is a home already; creates nothing.  True for other homes, which are checked when opened."""
    folder = folder_of(url)
    return folder is None or (folder / DATABASE).is_file()


def s3_options(url: str) -> tuple[str, Mapping[str, str]]:
    """The bucket URL and the options of an s3:// home; an unknown option is refused with the nearest known name."""
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
