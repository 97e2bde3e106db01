"""A schema registry: a client of Confluent's REST protocol, for the schemas whose ids values begin with.

byte 0: 0       bytes 1 to 4: the schema's id, big-endian       then the value
"""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from tailrace.errors import BadSetting, NotReady, Unavailable

ANSWER_SECONDS = 15.0
MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of an answer."""
HEADER_BYTES = 5


class Reference(msgspec.Struct):
    """A reference of a schema to another."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct):
    """A schema as the registry gives it."""

    schema: str
    schemaType: str = "AVRO"
    references: list[Reference] = []


def schema_id(value: bytes) -> int | None:
    """The schema's id with which a value begins; None if it does not begin with one."""
    return int.from_bytes(value[1:HEADER_BYTES], "big") if value[:1] == b"\0" and len(value) >= HEADER_BYTES else None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the client would send the password there, too."""

    def redirect_request(self, *_: Any) -> None:
        """Give no request, so that the answer is raised as an error."""


_open = urllib.request.build_opener(_NoRedirects).open


class SchemaRegistry:
    """One registry.  Neither `where` nor its errors show the password."""

    def __init__(self, url: str) -> None:
        try:
            parts, port = urlsplit(url), urlsplit(url).port
        except ValueError:
            raise BadSetting("registry: this is no address; https://user:password@host:8081 is one") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting("registry: it must be http:// or https:// and name a host")
        host = parts.hostname + (f":{port}" if port else "")
        self.where = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._login = None
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._login = f"Basic {base64.b64encode(login.encode()).decode()}"

    def by_id(self, id: int, *, serialized: bool = False) -> Schema:
        """Ask for the schema with an id.  With `serialized` a Protobuf schema comes as its descriptor in base64."""
        return self._get(f"/schemas/ids/{id}", serialized)

    def referenced(self, one: Reference, *, serialized: bool = False) -> Schema:
        """Ask for the schema of a reference."""
        return self._get(f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}", serialized)

    def _get(self, path: str, serialized: bool) -> Schema:
        url = f"{self.where}{path}" + ("?format=serialized" if serialized else "")
        accept = {"Accept": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(url, headers=accept | ({"Authorization": self._login} if self._login else {}))
        try:
            with _open(request, timeout=ANSWER_SECONDS) as answer:
                found = answer.read(MAX_BYTES + 1)
            return msgspec.json.decode(found, type=Schema)
        except urllib.error.HTTPError as error:
            raise self._refused(error, path) from None
        except (OSError, http.client.HTTPException) as error:
            reason: Any = getattr(error, "reason", None) or error
            raise Unavailable(f"the schema registry at {self.where} cannot be reached: {reason}") from None
        except msgspec.MsgspecError as error:
            raise Unavailable(f"what answers at {self.where} is no schema registry ({error})") from None

    def _refused(self, error: urllib.error.HTTPError, path: str) -> NotReady | Unavailable:
        error.close()
        if error.code in (401, 403):
            return NotReady(f"the schema registry at {self.where} refuses this user; check the one in registry=")
        if 300 <= error.code < 400:
            return NotReady(
                f"the schema registry at {self.where} answers {error.code}, a redirect, which is not followed; put the "
                "right address into registry = …"
            )
        if error.code == 404:
            return NotReady(f"the schema registry at {self.where} has no {path}; is it the one of these topics?")
        return Unavailable(f"the schema registry at {self.where} answers {error.code} for {path}")
