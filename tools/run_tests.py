"""Runs the tests as `make test` does.  A test that fails once is a defect, also if it passes the second time.

Only tests of real processes (marked `processes`: kills, clusters, terminals) are run again by themselves when they
fail, since a busy machine can make those late; how many needed it is said at the end.

    python tools/run_tests.py [arguments for pytest…]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = [sys.executable, "-m", "pytest", "-m", "not soak"]
PARALLEL = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--durations", "40", "--durations-min", "5"]
"""Three at a time for two cores: a third of the time tests wait, for servers, disks and processes that start."""
LINE = "!" * 100


def failures(arguments: list[str]) -> tuple[int, dict[str, bool]]:
    """Run pytest; gives its exit code, and the tests that failed, with whether each is one of real processes."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "failed.json"
        env = {**os.environ, "TAILRACE_FAILED_TESTS": str(told)}
        code = subprocess.run([*RUN, *arguments], env=env, check=False).returncode
        return code, json.loads(told.read_text()) if told.exists() else {}


def shown(title: str, tests: list[str]) -> None:
    """Name some tests so that nobody overlooks it."""
    sys.stdout.write("\n".join(["", LINE, title, LINE, *(f"  {test}" for test in tests), ""]))
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """The exit code: 0 if every test passed the first time, or is one of real processes and passed the second."""
    code, failed = failures([*PARALLEL, *arguments])
    if code == 0:
        return 0
    defects = [test for test, real in failed.items() if not real]
    late = [test for test, real in failed.items() if real]
    if not failed:
        return code  # nothing was collected, or pytest itself failed
    if late:
        code, again = failures(late)
        passed = [test for test in late if test not in again] if code == 0 or again else []
        if passed:
            shown(f"{len(passed)} TEST(S) OF REAL PROCESSES PASSED ONLY WHEN RUN AGAIN, ALONE", passed)
        defects += [test for test in late if test not in passed]
    if defects:
        shown(f"{len(defects)} TEST(S) FAILED.  One that fails once is a defect: run it until it fails again", defects)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
