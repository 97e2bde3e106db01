"""Settings: no password is shown."""

from __future__ import annotations

from typing import Annotated

import pytest
from rich.pretty import pretty_repr

from tailrace.adaptors.contract import Settings, secret
from tailrace.adaptors.registry import adaptor


class Login(Settings):
    uri: Annotated[str, secret("where it is")]
    token: Annotated[str, secret("what opens it")] | None = None
    rows: int = 5


def test_what_is_marked_as_secret_is_not_shown() -> None:
    login = Login(uri="db://ann:sesame@host", token="sesame")
    assert repr(login) == str(login) == f"{login}" == "Login(uri=***, token=***, rows=5)"
    assert "sesame" not in pretty_repr(login)
    assert "rows=5" in pretty_repr(login)


@pytest.mark.parametrize("name", ["mongodb", "mysql", "postgres"])
def test_no_database_shows_its_password(name: str) -> None:
    found = adaptor(name)
    for kind in (found.reader_settings, found.writer_settings):
        assert kind is not None
        assert "sesame" not in repr(kind(uri="db://ann:sesame@host"))  # type: ignore[call-arg]
