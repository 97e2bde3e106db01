"""The machine a figure belongs to, in a few words."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path


def describe(folder: Path) -> dict[str, str]:
    """Date, processor, kernel, filesystem and its fdatasync, and how busy the machine is with other things."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{pages / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "disk": f"{_filesystem(folder)}, fdatasync p50 {sync_milliseconds(folder):.3f} ms (4 KiB at the end of a file)",
        "busy with other things just before": _busy_in_words(busy()),
    }


def busy(seconds: float = 3) -> float:
    """The share of the processors' time that others take while this process sleeps."""
    before = _ticks()
    time.sleep(seconds)
    spent = [after - then for after, then in zip(_ticks(), before, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / max(sum(spent), 1)


def _ticks() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _busy_in_words(share: float) -> str:
    return f"{share:.0%}" + (" (too much: take these figures as provisional)" if share > 0.1 else "")


def sync_milliseconds(folder: Path, count: int = 500) -> float:
    """The median of writing 4 KiB at the end of a file and syncing it."""
    path, block, seconds = folder / "probe", os.urandom(4096), []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            start = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - start)
    path.unlink()
    return statistics.median(seconds) * 1000


def processor_seconds(pid: int) -> float:
    """How long a process has had a processor so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """The memory that a process has now."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    asked = ["findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target", str(folder)]
    try:
        kind, source = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[:2]
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown filesystem"
    return f"{kind} on {Path(source).name}"
