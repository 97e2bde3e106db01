"""Errors of RabbitMQ and its clients, as tailrace's errors.

`Unavailable` is for what passes by itself: no connection, a restart.  `NotReady` is for what somebody must mend: a
password, a missing right, a missing queue or vhost.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from tailrace.errors import NotReady, TailraceError, Unavailable

NOT_FOUND, LOCKED, PRECONDITION, REFUSED, NOT_ALLOWED = 404, 405, 406, 403, 530
_CLOSED = re.compile(r"""\((\d{3})\) ["'](.*)["']""")
"""The code and text of the broker's close, in those of pika's errors that keep them only as text."""


class Address:
    """The broker's host, port and vhost and the connecting user, as errors show them."""

    def __init__(self, host: str, port: int, vhost: str, user: str) -> None:
        self.vhost, self.user, self.host, self.port = vhost, user, host, port

    def __str__(self) -> str:
        return f"RabbitMQ at {self.host}:{self.port}" + ("" if self.vhost == "/" else f"/{self.vhost}")

    @property
    def permissions(self) -> str:
        """The command that grants the user all rights on the broker, for errors to advise."""
        return f"rabbitmqctl set_permissions -p {self.vhost} {self.user} '.*' '.*' '.*'"


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all errors within it: pika wraps errors in others, as attributes or arguments."""
    yield error
    inside = [getattr(error, "exception", None), *getattr(error, "exceptions", ()), *error.args]
    for one in [*inside, error.__cause__]:
        if isinstance(one, BaseException):
            yield from causes(one)


def code_of(error: BaseException) -> int:
    """The code of an error: that with which the broker closed a channel or a connection; 0 if it closed none."""
    for one in causes(error):
        if code := getattr(one, "reply_code", 0):
            return int(code)
        if closed := _CLOSED.search(str(one)):
            return int(closed[1])
    return 0


def text_of(error: BaseException) -> str:
    """What happened, in one line: the broker's words if there are any, else those of the innermost error."""
    for one in causes(error):
        closed = _CLOSED.search(str(one))
        if said := getattr(one, "reply_text", "") or (closed and closed[2]):
            return str(said).splitlines()[0].rpartition(" - ")[2]
    last = [one for one in causes(error) if str(one)][-1:] or [error]
    return (str(last[0]).strip().splitlines() or [""])[0] or type(last[0]).__name__


def failed(error: BaseException, address: Address, doing: str, what: str = "") -> TailraceError:
    """tailrace's error for an error of a client.  `doing` says what was attempted, `what` is the command that makes
    what may be missing."""
    code, text = code_of(error), text_of(error)
    said = f"{address}, {doing}: {text}"
    if is_login(error):
        return NotReady(
            f"{address} does not let {address.user!r} in with this password; rabbitmqctl change_password "
            f"{address.user} …, for a user that does not exist rabbitmqctl add_user {address.user} …"
        )
    if any(isinstance(one, ssl.SSLError) for one in causes(error)):
        return NotReady(f"{said}; check ca for an authority of your own, and that the port is one with TLS (5671)")
    if code == NOT_ALLOWED and "not found" in text:
        return NotReady(f"{said}; rabbitmqctl add_vhost {address.vhost}, or name another in the uri")
    if code in (REFUSED, NOT_ALLOWED) and "refused" in text:
        return NotReady(f"{said}; {address.permissions}")
    if code == NOT_FOUND:
        return NotReady(f"{said}{f'; {what}' if what else ''}")
    if code in (LOCKED, PRECONDITION, REFUSED, NOT_ALLOWED):
        return NotReady(said)
    return Unavailable(f"{said}; is it running there, and are host, port and TLS in the uri right?")


def is_login(error: BaseException) -> bool:
    """Whether an error says that the broker refused the user or the password.

    A connection that the network cuts during the login is no refusal, though pika calls it a probable one: the broker
    says why it refuses."""
    names = {type(one).__name__ for one in causes(error)}
    if "ProbableAuthenticationError" in names and code_of(error) == REFUSED:
        return True
    return bool(names & {"AuthenticationError", "AuthenticationFailure"}) or any(
        getattr(one, "reply_code", 0) == REFUSED and "Login was refused" in str(one) for one in causes(error)
    )
