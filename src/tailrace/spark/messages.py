"""Messages: the commit log of a pipeline as documents with their fields, for a Spark job of your own."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType, VariantType

from tailrace.errors import BadSetting

ABOUT = ("namespace", "id", "op", "mode", "timestamp", "partition", "offset")
"""The columns of a message besides its document."""
NEEDED = ("key", "value", *ABOUT[2:])
NESTED = (StructType, ArrayType, MapType, VariantType)


def messages(records: DataFrame, namespace: str | None = None, columns: str | StructType | None = None) -> DataFrame:
    """The records of a pipeline's commit log as messages: namespace, id, op, mode, timestamp, partition, offset, data.

        log = spark.read.format("tailrace").option("subscribe", "shop-log").load()
        orders = messages(log, "public.orders", "id bigint, total decimal(10,2), details variant")

    `data` is the document as JSON text; with `columns` (as in CREATE TABLE, or a StructType) it is a struct of these
    fields.  `namespace` takes the messages of one table.  The order of one document's messages is that of (partition,
    offset).  A delete has the fields of the id alone, and a field that the source did not send is null."""
    missing = [name for name in NEEDED if name not in records.columns]
    if missing:
        raise BadSetting(
            f"messages are made of a topic's records, which here have no {', '.join(missing)}: "
            "spark.read.format('tailrace').option('subscribe', 'PIPELINE-log').load()"
        )
    key, zero = f.col("key").cast("string"), f.lit("\0")
    found = f.substring_index(key, "\0", 1)
    made = records.select(
        found.alias("namespace"),
        f.substr(key, f.instr(key, zero) + 1).alias("id"),
        *ABOUT[2:],
        f.col("value").cast("string").alias("data"),
    )
    if namespace is not None:
        made = made.where(f.col("namespace") == namespace)
    return made if columns is None else made.withColumn("data", _typed(f.col("data"), _schema(columns)))


def _schema(columns: str | StructType) -> StructType:
    if isinstance(columns, str):
        columns = StructType.fromDDL(columns)
    if not isinstance(columns, StructType) or not columns.fields:
        raise BadSetting(
            f"the columns of messages are as in CREATE TABLE: 'id bigint, total decimal(10,2)', not {columns!r}"
        )
    return columns


def _typed(document: Column, schema: StructType) -> Column:
    """A document as a struct.  The source's own JSON (jsonb) is a text within it, which is parsed in a second step."""
    plain = StructType([StructField(one.name, _first(one.dataType)) for one in schema.fields])
    parsed = f.from_json(document, plain)
    return f.struct(*(_second(parsed[one.name], one.dataType).alias(one.name) for one in schema.fields))


def _first(kind: DataType) -> DataType:
    return StringType() if isinstance(kind, NESTED) else kind


def _second(column: Column, kind: DataType) -> Column:
    if isinstance(kind, VariantType):
        return f.parse_json(column)
    return f.from_json(column, kind) if isinstance(kind, NESTED) else column
