"""The endpoint: sends requests, and decides by the answer.

    2xx                         the receiver has taken the message
    408, 425, 429, 5xx          sent again, after the time in Retry-After; so is a request without an answer
    the statuses of `setup`     the endpoint's settings are wrong: `NotReady`.  So for a redirect, which could take a
                                signature elsewhere
    any other                   the receiver refuses the message: `Rejected`

The client is urllib3, which boto3 needs anyway, and which keeps connections open and has no retries or redirects unless
they are turned on.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError, SSLError, TimeoutError

from tailrace.adaptors.http.settings import HttpSink
from tailrace.adaptors.http.signature import keys_of, signed
from tailrace.errors import BadSetting, NotReady, Rejected, StorageError, Throttled, TimedOut, Unavailable

RETRIED_STATUSES = frozenset({408, 425, 429})
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 15.0
MAX_ANSWER_BYTES = 64 * 1024
"""How many bytes of an answer are read.  A longer answer ends the connection."""
SLOT = "{namespace}"
MIN_SECRET_CHARACTERS = 6
"""The least length of a secret that is hidden in an answer's text: a shorter one may be in any text by chance."""


class Endpoint:
    """The endpoint of the settings.  Several threads may post at a time."""

    def __init__(
        self,
        settings: HttpSink,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._settings, self._clock, self._sleep = settings, clock, sleep
        self._keys = keys_of(settings.secret)
        try:
            parts = urlsplit(settings.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
                raise ValueError
            self._to = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise BadSetting("url: not as https://host/path; a user and a password go into authorization = …") from None
        self._secure = parts.scheme == "https"
        self.where = f"{parts.scheme}://{self._to[0]}:{self._to[1]}"
        """Scheme, host and port, for messages; without the path, which may hold a token."""
        self._pool: urllib3.PoolManager | None = None

    @property
    def _http(self) -> urllib3.PoolManager:
        if self._pool is None:
            given: dict[str, Any] = {"ssl_context": self._context()} if self._secure else {}
            self._pool = urllib3.PoolManager(maxsize=self._settings.requests, retries=False, **given)
        return self._pool

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._settings.ca)
        except (OSError, ssl.SSLError) as error:
            raise NotReady(f"ca: {self._settings.ca} cannot be read as certificates: {error}") from None

    def check(self) -> None:
        """Connect, and for https check the certificate.  Sends no request, because the receiver would take any for an
        event."""
        try:
            with socket.create_connection(self._to, self._settings.timeout) as plain:
                if self._secure:
                    with self._context().wrap_socket(plain, server_hostname=self._to[0]):
                        pass
        except OSError as error:
            raise self._unreached(error) from None

    # -- posting
    def post(self, namespace: str, id: str, key: str, body: bytes, stopped: Callable[[], bool]) -> None:
        """Post a body, and try again for `patience` seconds or until `stopped`.  Returns when the receiver has taken
        it.

        `id` is the message that `Rejected` names, "" for a body of several messages."""
        deadline, pause = time.monotonic() + self._settings.patience, FIRST_PAUSE_SECONDS
        while True:
            try:
                self._once(namespace, id, key, body)
                return
            except StorageError as error:
                wait = max(getattr(error, "after", 0.0), random.uniform(pause / 2, pause))
                if stopped() or time.monotonic() + wait > deadline:
                    raise
                self._sleep(wait)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _once(self, namespace: str, id: str, key: str, body: bytes) -> None:
        settings = self._settings
        headers = {"content-type": "application/json", "user-agent": "tailrace", **settings.headers}
        if settings.authorization:
            headers["authorization"] = settings.authorization
        headers |= {"idempotency-key": key, **signed(self._keys, key, int(self._clock()), body)}
        url = settings.url.replace(SLOT, quote(namespace.encode(errors="surrogateescape"), safe=""))
        try:
            answer = self._http.request(
                "POST", url, body=body, headers=headers, timeout=settings.timeout, redirect=False,
                preload_content=False,
            )  # fmt: skip
        except (HTTPError, OSError, ValueError) as error:
            raise self._unreached(error) from None
        said, whole = b"", False
        with suppress(HTTPError, OSError):  # the status is enough
            said = answer.read(MAX_ANSWER_BYTES)
            whole = not answer.read(1)
        if not whole:
            answer.close()
        answer.release_conn()
        self._judge(answer.status, answer.headers, said, namespace, id)

    def _judge(self, status: int, headers: urllib3.HTTPHeaderDict, said: bytes, namespace: str, id: str) -> None:
        if 200 <= status < 300:
            return
        shown = self._without_secrets(" ".join(said[:200].decode(errors="replace").split()))
        what = f"{self.where} answers {status}" + (f": {shown}" if shown else "")
        if status in RETRIED_STATUSES or status >= 500:
            raise Later(what, _after(headers.get("retry-after"), self._clock()))
        if 300 <= status < 400:
            raise NotReady(f"{what}, a redirect, which is not followed; put the right address into url = …")
        if status in self._settings.setup:
            raise NotReady(f"{what}; check url, authorization and secret, and what the receiver says of it")
        shown = repr(id) if id else "one of several messages"
        raise Rejected(f"{namespace}: {what}; it refuses {shown}", namespace=namespace, id=id)

    def _without_secrets(self, text: str) -> str:
        """The text of an answer without the settings' secrets, which a receiver may repeat."""
        settings = self._settings
        for one in (settings.url, settings.secret, settings.authorization, *settings.headers.values()):
            text = text.replace(one, "***") if one and len(one) >= MIN_SECRET_CHARACTERS else text
        return text

    def _unreached(self, error: BaseException) -> Exception:
        said, what = str(error), self.where
        if isinstance(error, LocationParseError):
            return BadSetting("url: not as https://host/path")
        if isinstance(error, ValueError) and not isinstance(error, OSError):
            return BadSetting("authorization or headers: not what a header of HTTP can hold")
        if isinstance(error, (ssl.SSLError, SSLError)) or "CERTIFICATE_VERIFY" in said:
            if "WRONG_VERSION_NUMBER" in said or "record layer" in said:
                return NotReady(f"{what} speaks http, not https; begin the url with http://")
            if "CERTIFICATE_VERIFY" in said:
                reason = said.partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
                return NotReady(f"the certificate of {what} is not trusted, or is of another name ({reason}); ca = …")
        if isinstance(error, socket.gaierror) or "NameResolution" in type(error).__name__:
            return Unavailable(f"{what}: no such host; is the url right?")
        if isinstance(error, (NewConnectionError, ConnectionRefusedError)):
            return Unavailable(f"{what}: cannot connect; is the receiver running there?")
        if isinstance(error, (TimeoutError, OSError)) and "timed out" in said:
            return TimedOut(f"{what}: no answer within {self._settings.timeout:g} s")
        return TimedOut(f"{what}: sent, and the connection ended without an answer ({type(error).__name__})")

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.clear()
            self._pool = None


class Later(Throttled):
    """The receiver is busy, or fails for now.  It may be asked again after `after` seconds."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


def _after(text: str | None, now: float) -> float:
    """The seconds to wait by the header Retry-After, which has a number or a date; 0 if it has neither."""
    if not text:
        return 0.0
    with suppress(ValueError):
        return max(0.0, float(text)) if float(text) < 1e9 else 0.0
    with suppress(ValueError, TypeError, OverflowError):
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
    return 0.0
