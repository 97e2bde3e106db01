"""procrastinate: tasks in PostgreSQL, run by asyncio workers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import procrastinate

from benchmarks.contract import Place
from benchmarks.queues.contract import Got
from benchmarks.queues.postgres import durable


class Procrastinate:
    """A task whose argument is the message, as text: arguments are JSON."""

    def __init__(self, address: str) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self.address = address
        self.app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=address))
        self.task: Any = self.app.task(name="handle")(lambda message: None)
        self.app.open()

    def push(self, message: bytes) -> None:
        """defer()."""
        self.task.defer(message=_text(message))

    def push_many(self, messages: Sequence[bytes]) -> None:
        """batch_defer(): one statement."""
        self.task.batch_defer(*({"message": _text(message)} for message in messages))

    def take(self, batch: int, got: Got) -> None:
        """A worker that runs up to `batch` tasks at once; each task is fetched and finished by itself."""
        asyncio.run(self._work(batch, got))

    async def _work(self, batch: int, got: Got) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.address, min_size=2, max_size=8)
        app, over = procrastinate.App(connector=connector), asyncio.Event()

        @app.task(name="handle")
        async def handle(message: str) -> None:
            if got([base64.b85decode(message)]):
                over.set()

        async with app.open_async():
            worker = asyncio.ensure_future(
                app.run_worker_async(concurrency=batch, install_signal_handlers=False, fetch_job_polling_interval=0.5)
            )
            while not over.is_set() and not got(()):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.05)
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker


def _text(message: bytes) -> str:
    return base64.b85encode(message).decode()


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """PostgreSQL with its tables."""
    with durable(folder) as server:
        app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=server.uri()))
        with app.open():
            app.schema_manager.apply_schema()
        yield Place(server.uri(), server.pid)


@contextlib.contextmanager
def connect(address: str) -> Iterator[Procrastinate]:
    """A client of the server there."""
    queue = Procrastinate(address)
    try:
        yield queue
    finally:
        queue.app.close()
