"""Topics as an ordinary Spark source and sink.

import tailrace.spark

spark = tailrace.spark.session(home="./data")
orders = spark.read.format("tailrace").option("subscribe", "orders").load()
orders.groupBy("key").count().show()
"""

from tailrace.spark.installed import check_pyspark

check_pyspark()

from tailrace.spark.format import Tailrace  # noqa: E402
from tailrace.spark.lag import Lag, lag  # noqa: E402
from tailrace.spark.session import register, session  # noqa: E402

__all__ = ["Lag", "Tailrace", "lag", "register", "session"]
