"""Delta tables as a sink, through the library deltalake: on disk and on S3, GCS or Azure, exactly once.

Read in this order: settings, writer, lake, table, ledger, durable, store, errors.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.delta.settings import DeltaSink
from tailrace.adaptors.delta.writer import DeltaWriter

adaptor = Adaptor(
    name="delta",
    about="Delta tables in a folder or a bucket, as the current state of each namespace or as a log of its changes",
    writer=DeltaWriter,
    writer_settings=DeltaSink,
    limits="not written: column mapping, deletion vectors, generated columns; one process merges (docs/guide/lake.md)",
    example='.save("delta", path="s3://bucket/shop")  # tailrace topic publish orders --as delta --to s3://bucket/lake',
)
