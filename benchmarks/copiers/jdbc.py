"""Spark's own JDBC source, into its JDBC sink or into Parquet: `python -m … FROM INTO JAR ROWS`."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

TASKS = 2


def options(uri: str) -> dict[str, str]:
    """A PostgreSQL's address as JDBC has it."""
    parts = urlsplit(uri)
    url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true"
    return {
        "url": url,
        "user": parts.username or "",
        "password": parts.password or "",
        "driver": "org.postgresql.Driver",
    }


def main() -> None:
    """Read the table in as many tasks as there are cores, by ranges of its key, and write it."""
    source, into, jar, rows = sys.argv[1:]
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.driver.extraClassPath", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(max(int(rows), 2)), "numPartitions": TASKS}
    read = spark.read.format("jdbc").options(**options(source), **bounds, dbtable="public.items", fetchsize="10000")
    frame = read.load()
    if into.startswith("postgresql://"):
        frame.write.format("jdbc").options(**options(into), dbtable="public.items", batchsize="10000").mode(
            "append"
        ).save()
    else:
        frame.write.mode("overwrite").parquet(into)
    spark.stop()


if __name__ == "__main__":
    main()
