"""The window of acknowledgements: pure."""

from __future__ import annotations

import random

from tailrace.queue.window import ISOLATE, LENGTH, MOST_FAILING, MOST_MARKS, Window


def emitted(window: Window, end: int, most: int = 100) -> list[int]:
    return list(window.emit(end, most))


def test_the_position_moves_over_what_is_done() -> None:
    window = Window()
    assert emitted(window, 5) == [0, 1, 2, 3, 4]
    assert window.finish(1)
    assert window.finish(2)
    assert not window.finish(2)
    window.settle()
    assert (window.position, window.open, window.done_ahead) == (0, 3, 2)
    window.finish(0)
    window.settle()
    assert (window.position, window.open, window.done_ahead, window.acked) == (3, 2, 0, 3)


def test_nothing_beyond_the_window_is_emitted() -> None:
    window = Window()
    assert len(emitted(window, 10_000, 10_000)) == LENGTH
    window.finish(1)
    window.settle()
    assert emitted(window, 10_000, 10_000) == []
    window.finish(0)
    window.settle()
    assert emitted(window, 10_000, 10_000) == [LENGTH, LENGTH + 1]


def test_what_an_owner_leaves_open_has_had_an_attempt() -> None:
    window = Window()
    emitted(window, 4)
    window.finish(1)
    window.begin()
    assert [window.tried(n) for n in range(5)] == [1, 1, 1, 1, 0]
    assert emitted(window, 5) == [0, 2, 3, 4]


def test_what_is_put_back_has_had_none() -> None:
    window = Window()
    emitted(window, 4)
    window.put_back()
    window.begin()
    assert window.tried(0) == 0
    assert emitted(window, 4) == [0, 1, 2, 3]


def test_a_message_that_owners_died_of_comes_alone() -> None:
    window = Window()
    for _ in range(ISOLATE):
        emitted(window, 3)
        window.begin()
    assert emitted(window, 3) == [0]
    assert emitted(window, 3) == []
    window.begin()
    assert [window.tried(n) for n in range(3)] == [3, 2, 2]
    assert emitted(window, 3) == [0]
    window.finish(0, dead=True)
    window.settle()
    assert emitted(window, 3) == [1]


def test_while_many_fail_nothing_new_is_emitted() -> None:
    window = Window()
    for offset in emitted(window, MOST_FAILING):
        window.fail(offset)
    assert emitted(window, 1000) == []
    window.fail(0)
    assert (window.attempts[0], window.errored) == (2, MOST_FAILING + 1)
    window.finish(5)
    assert emitted(window, 1000, 1) == [MOST_FAILING]


def test_the_next_owner_emits_what_fails_again() -> None:
    window = Window()
    for offset in emitted(window, 100):
        window.fail(offset)
    window.put_back()
    window.begin()
    assert emitted(window, 1000, 70) == list(range(70))
    assert emitted(window, 1000) == [], "more than 64 of these fail"


def test_marks_of_an_owner_whose_clock_is_ahead() -> None:
    for ahead in range(-5, 25):
        window = Window()
        for n in range(1, 50):
            window.position = n
            window.mark(1000 + n + (ahead if n < 25 else 0))
        assert len(window.marks) == MOST_MARKS
        assert window.marks[-1] == (1049, 49)


def test_stored_and_read_again_it_is_the_same() -> None:
    rng, window = random.Random(1), Window()
    for _ in range(300):
        for offset in emitted(window, window.upto + 3):
            if rng.random() < 0.7:
                window.finish(offset, dead=rng.random() < 0.1)
            elif rng.random() < 0.3:
                window.fail(offset)
        if rng.random() < 0.05:
            window.begin()
        window.settle()
        assert Window.of(window.position, window.stored(1)) == window
        assert window.acked + window.dead == window.position + window.done_ahead


def test_if_the_position_was_moved_by_hand_only_the_counters_hold() -> None:
    window = Window()
    emitted(window, 5)
    window.finish(3)
    again = Window.of(2, window.stored(1))
    assert (again.position, again.bits, again.upto, again.acked) == (2, 0, 2, 1)
