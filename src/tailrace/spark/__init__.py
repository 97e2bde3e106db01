"""Spark: topics, change streams and the feed as ordinary sources, topics as a sink.  `session` starts Spark with the
format registered.

Used from outside: session, columns.
Read in this order: session, format, options, columns, messages, short_errors.
"""

from tailrace.spark.runtime.installed import check_pyspark

check_pyspark()

from tailrace.spark.format import Tailrace  # noqa: E402
from tailrace.spark.messages import messages  # noqa: E402
from tailrace.spark.session import register, session  # noqa: E402
from tailrace.spark.source.lag import QueryLag, lag  # noqa: E402

__all__ = ["QueryLag", "Tailrace", "lag", "messages", "register", "session"]
