"""Jobs: long work that a client starts and watches (a scrub, upkeep, an estimate of costs), each in its own thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tailrace.errors import Busy, NotThere, TailraceError

MOST_RUNNING, MOST_KEPT = 2, 100
_log = logging.getLogger("tailrace.console")
State = Literal["running", "done", "failed"]


class Job(msgspec.Struct):
    """A job: its progress, and its result or error; times are in milliseconds since 1970.  `done` and `total` count the
    bytes of a scrub, the steps of an estimate; a `total` of 0 is not known."""

    number: int
    what: str
    state: State
    started: int
    ended: int | None = None
    done: int = 0
    total: int = 0
    error: str = ""
    result: Any = None


class Jobs:
    """The jobs of one server since its start; of many, the newest are kept."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._count = 0

    def start(self, what: str, work: Callable[[Job], Any]) -> Job:
        """Start `work` in a new thread and return its job; raise `Busy` if too many jobs run."""
        with self._lock:
            running = [job for job in self._jobs.values() if job.state == "running"]
            if len(running) >= MOST_RUNNING:
                names = ", ".join(f"{job.number} ({job.what})" for job in running)
                raise Busy(f"the jobs {names} are running; start another when one has ended")
            self._count += 1
            job = self._jobs[self._count] = Job(self._count, what, "running", int(time.time() * 1000))
            while len(self._jobs) > MOST_KEPT:
                self._jobs.popitem(last=False)
        name = f"tailrace-job-{job.number}"
        threading.Thread(target=self._run, args=(job, work), name=name, daemon=True).start()
        return job

    def _run(self, job: Job, work: Callable[[Job], Any]) -> None:
        try:
            job.result = work(job)
            job.state = "done"
        except TailraceError as error:
            job.error, job.state = str(error), "failed"
        except Exception:
            _log.exception("job %d (%s) failed", job.number, job.what)
            job.error, job.state = "it failed; the server's log says why", "failed"
        finally:
            job.ended = int(time.time() * 1000)

    def all(self) -> list[Job]:
        """Return all jobs that are kept, newest first."""
        return [*reversed(self._jobs.values())]

    def one(self, number: int) -> Job:
        """Return the job of this number; raise `NotThere` if none is kept."""
        found = self._jobs.get(number)
        if found is None:
            raise NotThere(f"there is no job {number} here; a server knows those that it has started itself")
        return found
