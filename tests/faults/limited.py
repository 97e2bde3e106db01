"""Python in a process of its own whose memory is limited, as where a container or a small machine has no more."""

from __future__ import annotations

import subprocess
import sys

GIB = 1 << 30

_START = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
"""

_CLI = """
from tailrace.cli.main import main
sys.argv = ["tailrace", *sys.argv[1:]]
main()
"""


def python(code: str, *args: str, limit: int = GIB, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run some code."""
    done = subprocess.run(
        [sys.executable, "-c", _START.format(limit=limit) + code, *args], input=given, capture_output=True, timeout=240
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def tailrace(*args: str, limit: int = GIB, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return python(_CLI, *args, limit=limit, given=given)
