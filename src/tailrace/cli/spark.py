"""`tailrace spark …`: topics to files, files to topics, and counts, by a Spark job."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, TopicArgument
from tailrace.cli.shared.spark_job import explained, run, session
from tailrace.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = new_group("Topics to files, files to topics, and counts, by a Spark job; here or on a cluster.")

MasterOption = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], spark://host:port, yarn, k8s://…"),
]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only records for which this condition holds.")
]
FromOption = Annotated[
    str, typer.Option("--from", metavar="POSITION", help="earliest, latest, a time, or 15m, 2h, 7d ago.")
]
FormatOption = Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet, json, csv, orc or text.")]


def count(
    topic: TopicArgument,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="Count by this column: partition, op, mode, key, topic."),
    ] = None,
    where: WhereOption = None,
    start: FromOption = "earliest",
    master: MasterOption = "local[*]",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the records of a topic.

    TOPIC may be several, with commas between.  `tailrace topic describe` says at once how many a topic has in all.

    Examples:

        tailrace spark count orders --where "cast(value AS string) LIKE '%paid%'"
        tailrace spark count orders --by op --from 24h
    """
    with session(master, home) as spark:
        records = _records(spark, topic, start, where, None if where else _needed(by))
        if by is None:
            found = run(spark, "counting", records.count)
            print(json.dumps({"records": found}) if as_json else found)
            return
        shown = f"decode({by}, 'UTF-8')" if by in ("key", "value") else by
        grouped = records.groupBy(_sql(shown).alias(by)).count().orderBy(by)
        for row in run(spark, "counting", grouped.collect):
            print(json.dumps({by: row[0], "records": row[1]}) if as_json else f"{row[0]}\t{row[1]}")


def read(
    topic: TopicArgument,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="The folder to write, on disk or s3a://…")],
    format: FormatOption = "parquet",
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Read only these columns, as in key,value.")
    ] = None,
    where: WhereOption = None,
    start: FromOption = "earliest",
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="If PATH exists: error, append or overwrite.")] = (
        "error"
    ),
    master: MasterOption = "local[*]",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the records of a topic to files.

    Examples:

        tailrace spark read orders --to orders.parquet
        tailrace spark read orders --to paid --format json --columns offset,value --where "offset > 100"
    """
    with session(master, home) as spark:
        records = _records(spark, topic, start, where, columns)
        if format in ("json", "csv", "text"):
            for name in {"key", "value"} & set(records.columns):
                records = records.withColumn(name, records[name].cast("string"))
        run(
            spark,
            "reading",
            lambda: records.write.format(format).mode(mode).save(os.path.abspath(to) if "://" not in to else to),
        )
    if as_json:
        print(json.dumps({"topic": topic, "to": to, "format": format}))


def write(
    topic: TopicArgument,
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files or folders.")],
    format: FormatOption = "parquet",
    key: Annotated[
        str | None, typer.Option("--key", metavar="SQL", help="The key: a column or a SQL expression.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", metavar="SQL", help="The value: a column or a SQL expression; by default the row as JSON."
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="A name for this write: the same name is written once only."),
    ] = None,
    master: MasterOption = "local[*]",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append the rows of files to a topic, all of them or none.

    Run again with the same --id it does nothing; without --id it appends them again.

    Examples:

        tailrace spark write orders orders.parquet --key order_id --id backfill-2026-01
        tailrace spark write orders data/*.json --format json --value "to_json(struct(id, total))"
    """
    with session(master, home) as spark:
        rows = spark.read.format(format).load(list(paths))
        made = [_sql(value or "to_json(struct(*))").cast("string").alias("value")]
        if key is not None:
            made.append(_sql(key).cast("string").alias("key"))
        sink = rows.select(*made).write.format("tailrace").mode("append").option("topic", topic)
        if id is not None:
            sink = sink.option("writeId", id)
        run(spark, "writing", sink.save)
    if as_json:
        print(json.dumps({"topic": topic, "paths": list(paths), "id": id}))


def _needed(by: str | None) -> str | None:
    """Return the one column that counting needs; None if it is not known."""
    from tailrace.spark.columns import TYPES

    return "partition" if by is None else by if by in TYPES else None


def _sql(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _records(spark: SparkSession, topic: str, start: str, where: str | None, columns: str | None = None) -> DataFrame:
    source = spark.read.format("tailrace").option("subscribe", topic)
    position = values.position(start)
    if isinstance(position, int):
        raise BadInput("--from is earliest, latest or a time here: topics have an offset for each partition")
    if isinstance(position, str):
        source = source.option("startingOffsets", position)
    else:
        source = source.option("startingTimestamp", position.isoformat())
    if columns is not None:
        source = source.option("columns", columns)
    with explained():
        records = source.load()
        return records if where is None else records.where(where)


for each in (count, read, write):
    command(app)(each)
