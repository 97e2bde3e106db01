"""Committer: many threads' writes in one transaction and one fsync, without a thread of its own.

A caller queues its work.  If no thread leads, it leads: it takes all queued work, does it, commits once, and wakes the
other threads.  Work that was queued meanwhile waits for the next leader, the first of the queue.  So a single thread
hands nothing over, and sixteen threads share a commit.

Most work judges first and changes afterwards: it raises before it has changed anything, or not at all.  Other work gets
a savepoint.  Each SQL statement lets other threads run first, so there are as few statements as possible.

No caller gets an answer before the commit, not even a Conflict: it may be caused by a change of the same commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from tailrace.errors import TimedOut
from tailrace.storage.sqlite.recent_items import RecentItems
from tailrace.storage.sqlite.watermark import Watermark

T = TypeVar("T")
Statement = tuple[str, tuple[Any, ...]]


class PendingWrite:
    """One caller's work and, after the commit, its answer or its error."""

    __slots__ = ("answer", "arguments", "between", "error", "judges", "leads", "settled", "turn", "work")

    def __init__(
        self, work: Callable[..., Any], arguments: tuple[Any, ...], *, judges: bool = False, between: bool = False
    ) -> None:
        self.work, self.arguments, self.judges, self.between = work, arguments, judges, between
        self.answer: Any = None
        self.error: BaseException | None = None
        self.settled = self.leads = False
        self.turn: threading.Lock | None = None

    def do(self, cursor: apsw.Cursor) -> bool:
        """Do the work; returns whether its changes are to be kept.  An error of SQLite itself concerns the whole
        commit."""
        try:
            self.answer = self.work(cursor, *self.arguments)
        except apsw.Error:
            raise
        except Exception as error:
            self.error = error
            return False
        return True

    def judge(self, cursor: apsw.Cursor) -> None:
        """Do work that judges first.  An error while its statements run concerns the whole commit."""
        if self.do(cursor):
            self.answer, statements = self.answer
            for sql, bindings in statements:
                cursor.execute(sql, bindings)

    def outcome(self) -> Any:
        """What the work of a thread returned in the shared transaction; raises what it raised."""
        if self.error is not None:
            raise self.error
        if not self.settled:
            raise TimedOut("the thread that committed for several was interrupted; this write may have happened")
        return self.answer


class SqliteCommitter:
    """The only writer of a connection.  `explain` turns an error of SQLite into the one that a caller gets; `refuse`
    makes the error for waiting callers once nothing more may be written."""

    def __init__(
        self,
        connection: apsw.Connection,
        explain: Callable[[apsw.Error], BaseException],
        refuse: Callable[[], BaseException | None],
        patience: float,
        watermark: Watermark | None = None,
    ) -> None:
        self._connection = connection
        self._watermark = watermark
        self._cursor = connection.cursor()
        self.recent = RecentItems(connection)
        self._explain, self._refuse = explain, refuse
        self._patience = patience
        self._mutex = threading.Lock()
        self._transaction = threading.Lock()
        self._queue: list[PendingWrite] = []
        self._led = False

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Answer `work(cursor, *arguments)`, once its changes are durable; if it raises, they never happened."""
        return self._run(PendingWrite(work, arguments))  # type: ignore[no-any-return]

    def change(self, judge: Callable[..., tuple[T, list[Statement]]], *arguments: Any) -> T:
        """As `run`, for work that returns the statements to execute, and that changes nothing when it raises."""
        return self._run(PendingWrite(judge, arguments, judges=True))  # type: ignore[no-any-return]

    def between(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Answer `work(cursor)`, done between two commits, while no other thread of this process can write."""
        return self._run(PendingWrite(work, (), between=True))  # type: ignore[no-any-return]

    def _run(self, entry: PendingWrite) -> Any:
        try:
            self._enter(entry)
            if entry.turn is not None and not entry.turn.acquire(timeout=self._patience):
                raise TimedOut(f"waited {self._patience:g} s for a shared commit; this write may have happened")
            if entry.leads:
                self._lead(entry)
        except BaseException:
            self._leave(entry)
            raise
        return entry.outcome()

    def close(self, *, checkpoint: bool) -> None:
        """Close the connection when the commit under way is done; without a checkpoint if the disk is in doubt."""
        with self._transaction:
            if not checkpoint:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()
            if self._watermark is not None:
                self._watermark.close()

    def _enter(self, entry: PendingWrite) -> None:
        with self._mutex:
            self._queue.append(entry)
            if self._led:
                entry.turn = threading.Lock()
                entry.turn.acquire()
            else:
                self._led = entry.leads = True

    def _leave(self, entry: PendingWrite) -> None:
        """Forget an entry whose caller gave up or was interrupted; if it was to lead, the next one does."""
        with self._mutex:
            if entry in self._queue:
                self._queue.remove(entry)
                if entry.leads:
                    self._hand_over()

    def _hand_over(self) -> None:
        self._led = bool(self._queue)
        if self._led:
            heir = self._queue[0]
            heir.leads = True
            if heir.turn is not None:
                heir.turn.release()

    def _lead(self, leader: PendingWrite) -> None:
        batch: list[PendingWrite] = []
        try:
            with self._mutex:
                batch, self._queue = self._queue, []
            with self._transaction:
                self._commit(batch)
        finally:
            with self._mutex:
                self._hand_over()
            for entry in batch:
                if entry is not leader and entry.turn is not None:
                    entry.turn.release()

    def _commit(self, batch: list[PendingWrite]) -> None:
        if self._refuse() is not None:
            for entry in batch:
                entry.error = self._refuse()
            return
        try:
            self._transact([entry for entry in batch if not entry.between])
            for entry in batch:
                if entry.between:
                    entry.do(self._cursor)
                    entry.settled = True
        except apsw.Error as error:
            for entry in batch:
                if not entry.settled:
                    entry.error = self._explain(error)
            self._roll_back()
        except BaseException:
            self._roll_back()
            raise

    def _transact(self, shared: list[PendingWrite]) -> None:
        if shared:
            self._cursor.execute("BEGIN IMMEDIATE")
            if self._watermark is not None:
                self._watermark.begin()
            self.recent.begin()
            for entry in shared:
                if entry.judges:
                    entry.judge(self._cursor)
                else:
                    self._do_apart(entry)
            self._cursor.execute("COMMIT")
            if self._watermark is not None:
                self._watermark.committed()
            self.recent.commit()
            for entry in shared:
                entry.settled = True

    def _do_apart(self, entry: PendingWrite) -> None:
        self._cursor.execute("SAVEPOINT entry")
        if not entry.do(self._cursor):
            self._cursor.execute("ROLLBACK TO entry")
        self._cursor.execute("RELEASE entry")
        self.recent.forget()

    def _roll_back(self) -> None:
        self.recent.forget()
        with suppress(apsw.Error):  # SQLite has often rolled back already
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")
