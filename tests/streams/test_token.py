"""Tokens and records of the service in many threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import msgspec
from tailrace.storage.aws.dynamostreams import _parse_records
from tailrace.streams.token import decode

met = []
sys.setprofile(lambda frame, event, _: met.append(frame.f_code.co_name))
{use}
sys.setprofile(None)
sys.exit("get_class_annotations" in met)
"""


@pytest.mark.parametrize(
    "use",
    [
        """decode({"table": "t", "stream": "s", "shards": [{"shard": "x"}], "at": 1}, "t", "s")""",
        """_parse_records({"status_code": 200, "body": b'{"Records": []}'}, {})""",
    ],
)
def test_types_are_prepared_before_threads_can_use_them(use: str) -> None:
    """Two threads that prepare one type at once can end the process, so that it happens at import."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(use=use)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "the first use prepares the type"
