"""What is said about a Spark job that was lost."""

from __future__ import annotations

import pytest

from tailrace.pipeline.runtime.spark_job import _line

WORKER = """Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times: org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 189, in _run_module_as_main
  AttributeError: module 'copy' has no attribute 'deepcopy'
PYTHONPATH was:
  /somewhere
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout"""
EXECUTOR = """Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)
Driver stacktrace:
    at org.apache.spark.Some.thing"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORKER, "AttributeError: module 'copy' has no attribute 'deepcopy'"),
        (EXECUTOR, "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)"),
        ("", "RuntimeError"),
    ],
    ids=["worker", "executor", "nothing"],
)
def test_the_line_that_says_why(text: str, told: str) -> None:
    assert _line(RuntimeError(text)) == told
