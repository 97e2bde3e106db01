"""Two processes append to one topic, one of them is killed with -9, and everything they were told is kept is there.

make demo-log, or: python examples/demo_log.py [SECONDS]
"""

# ruff: noqa: T201

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import tailrace

KEYS = 5
"""How many keys each writer has; a key's records are in one partition, in order."""

WINDOW = 200
"""How many records a writer has on their way before it waits for the oldest."""


def write(home: str, name: str) -> None:
    """Append numbered records until told to stop; say of each, once it is acknowledged, its number and its place."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with tailrace.open(home) as opened, opened.topic("demo").producer() as out:
        sent, waiting = 0, deque()
        while waiting or not stop.is_set():
            if not stop.is_set():
                waiting.append((sent, out.send(b"%s-%d" % (name.encode(), sent % KEYS), b"%d" % sent)))
                sent += 1
            if len(waiting) >= WINDOW or stop.is_set():
                number, ack = waiting.popleft()
                print(number, ack.partition, ack.result(), flush=True)


class Writer:
    """A writer in a process of its own, and what it was told."""

    def __init__(self, home: str, name: str) -> None:
        self.name, self.acknowledged = name, dict[int, tuple[int, int]]()
        command = [sys.executable, __file__, "write", home, name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last line of a killed process may be torn
                number, partition, offset = map(int, line.split())
                self.acknowledged[number] = (partition, offset)

    def end(self, signal_number: int) -> None:
        """Send a signal, and wait until the process is gone."""
        self.process.send_signal(signal_number)
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def check(condition: bool, text: str) -> None:
    """Say what was found; a demonstration that fails must not look like one."""
    print(f"  {'✓' if condition else '✗'} {text}")
    if not condition:
        sys.exit("the demonstration failed")


def run(home: str, seconds: float) -> None:
    """Write, kill, write on, read back, compare."""
    with tailrace.open(home) as opened:
        opened.create_topic("demo", partitions=4)
    writers = [Writer(home, name) for name in ("ann", "bob")]
    ann, bob = writers
    try:
        print("ann and bob, two processes, append to one topic on disk; each record is durable when acknowledged")
        while not all(writer.acknowledged or writer.process.poll() is not None for writer in writers):
            time.sleep(0.01)
        time.sleep(seconds / 2 + random.random())
        bob.end(signal.SIGKILL)
        assert bob.process.returncode == -signal.SIGKILL
        print(f"kill -9 bob, who was told of {len(bob.acknowledged):,} records; ann goes on as if nothing had happened")
        time.sleep(seconds / 2)
    finally:
        for writer in writers:
            if writer.process.poll() is None:
                writer.end(signal.SIGTERM)
    compare(home, ann, bob)


def compare(home: str, ann: Writer, bob: Writer) -> None:
    """Compare what the log has acknowledged with what it holds."""
    began = time.monotonic()
    with tailrace.open(home) as opened:
        records = list(opened.topic("demo").records())
    print(f"read back {len(records):,} records in {time.monotonic() - began:.1f} s")
    for writer in (ann, bob):
        mine = [record for record in records if record.key.startswith(writer.name.encode())]
        there = {int(record.value): (record.partition, record.offset) for record in mine}
        told = writer.acknowledged
        check(
            len(told) > 0 and told.items() <= there.items(),
            f"{writer.name}: all {len(told):,} acknowledged records are there, at the offsets that were told",
        )
        check(
            sorted(int(record.value) for record in mine) == list(range(len(mine))),
            f"{writer.name}: none is there twice, and none is missing in between",
        )
        keys = dict[bytes, list[int]]()
        for record in mine:
            keys.setdefault(record.key, []).append(int(record.value))
        check(all(numbers == sorted(numbers) for numbers in keys.values()), f"{writer.name}: each key's are in order")
        if extra := len(there) - len(told):
            print(f"    and {extra} more, stored before {writer.name} could be told")


def main() -> None:
    """Either a writer, or the whole demonstration in a folder that is removed afterwards."""
    if sys.argv[1:2] == ["write"]:
        write(*sys.argv[2:4])
        return
    seconds = float(sys.argv[1]) if sys.argv[1:] else 6.0
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as folder, suppress(KeyboardInterrupt):
        run(str(Path(folder) / "home"), seconds)


if __name__ == "__main__":
    main()
