"""The progress of shards, noted by many threads."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.adaptors.dynamodb.source.progress import ShardProgress


class Shard(str):
    """A name of a shard; at each comparison another thread notes an answer of a shard."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.meanwhile()
        return str(self) == other


def test_shards_that_answer_while_others_are_forgotten() -> None:
    progress = ShardProgress(lambda: 0.0)
    for n in range(5):
        progress.note("t", f"old {n}")
    answers = iter(range(100))
    noting = Shard("t")
    noting.meanwhile = lambda: progress.note("u", f"new {next(answers)}")
    progress.keep(noting, {"kept"})
    assert "old" not in progress.shown()
