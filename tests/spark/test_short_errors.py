"""Short errors: ours without a trace, all others with theirs."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from tailrace.errors import BadSetting, Damaged, TailraceError
from tailrace.spark.short_errors import short_errors


@short_errors
class Reader:
    def options(self) -> None:
        self._deep()

    def _deep(self) -> None:
        raise BadSetting("no such option")

    def read(self) -> Iterator[int]:
        yield 1
        try:
            raise OSError("the disk")
        except OSError as error:
            raise Damaged("lost", where="here", position=0) from error

    def fail(self) -> list[int]:
        return [1 // 0]

    def partitions(self) -> list[int]:
        return [1]


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


def test_our_errors_come_from_nowhere() -> None:
    with pytest.raises(BadSetting, match="no such option") as caught:
        Reader().options()
    assert frames(caught.value) == ["call"]
    found = Reader().read()
    assert next(found) == 1
    with pytest.raises(TailraceError, match="lost") as lost:
        next(found)
    assert frames(lost.value) == ["_each"]
    assert "the disk" not in "".join(traceback.format_exception(lost.value))


def test_other_errors_say_where_they_come_from() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        Reader().fail()
    assert frames(caught.value) == ["call", "fail"]


def test_answers_stay_as_they_are() -> None:
    assert Reader().partitions() == [1]
    assert Reader.partitions.__name__ == "partitions"
