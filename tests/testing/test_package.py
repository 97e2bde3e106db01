"""`tailrace.testing` can be used where pytest is not installed; only the contract classes need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tailrace.testing

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
import tailrace.testing as testing
for name in testing.__all__:
    if not name.endswith("Contract"):
        getattr(testing, name)
try:
    testing.TableContract
except ImportError:
    print("as expected")
"""


def test_only_the_contracts_need_pytest():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, timeout=60)
    assert done.stdout == "as expected\n", done.stderr


def test_contracts_are_there_by_name():
    assert tailrace.testing.TableContract.__name__ == "TableContract"
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = tailrace.testing.Nonsense
