"""Frames: users' functions over Spark DataFrames.

A DataFrame belongs to the driver, so a branch with such a function is delivered from there: the driver makes a
DataFrame of the rows of a namespace, up to 65,536 at a time, and reads the result back.  A function over messages or
Arrow columns runs in Spark's tasks instead, and is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa

from tailrace.errors import BadInput
from tailrace.pipeline.functions.calls import BatchCall, checked, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OfFrame: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, slots=True)
class Frame:
    """Calls a user's function with the documents' fields as a DataFrame, and a column `_row`."""

    takes_rows: ClassVar[bool] = True
    function: OfFrame

    def __call__(self, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Rows with the columns of the DataFrame that the function returns."""
        return BatchCall(self._through)(batch)

    def _through(self, columns: pa.RecordBatch) -> pa.Table:
        from pyspark.sql import DataFrame, SparkSession

        spark = SparkSession.builder.getOrCreate()
        result = self.function(spark.createDataFrame(pa.Table.from_batches([_fit(columns)])))
        if not isinstance(result, DataFrame):
            raise BadInput(f"{name_of(self.function)} gave a {type(result).__name__}; it gives a DataFrame")
        table = result.toArrow()
        row = columns.schema.names[-1]  # `BatchCall` has appended it
        return table.sort_by(row) if row in table.schema.names else table


def _fit(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The columns, with those whose types Spark lacks as text."""
    from pyspark.sql.pandas.types import from_arrow_type

    from tailrace.adaptors.file.sink.shapes import without

    def unfit(kind: pa.DataType) -> bool:
        try:
            from_arrow_type(kind)
        except Exception:
            return True
        return False

    return without(columns, unfit)


def frame(function: OfFrame) -> Frame:
    """Wrap a function of DataFrames that have the documents' fields as columns."""
    return Frame(checked("frame", function))


def has_frames(functions: Sequence[Any]) -> bool:
    """Whether a branch has a function over DataFrames, and so must be delivered from the driver."""
    return any(isinstance(function, Frame) for function in functions)
