"""A pipeline as a home knows one, without a run of it: definition, commit log, status, dead letters."""

from __future__ import annotations

import pyarrow as pa

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.pipeline.deliver.dead_letters import bury
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import ledger
from tailrace.pipeline.runtime.status import SinkStatus, SourceStatus, Status
from tailrace.pipeline.runtime.trouble import Trouble
from tests.console.web.filled import IMAGE, LARGE, SCRIPT

SECRET = "hunter2-in-the-settings"


def fill_pipeline(home: Home) -> None:
    """A pipeline `shop` whose writer has stopped at a hostile row."""
    made = (
        tailrace.pipeline("shop", home=home.url)
        .source("file", path=f"/in/{SECRET}", keys=["id"])
        .save("file", path=f"/out/{SECRET}", keep="state")
    )
    definition = made.definition()
    ledger.remember(home, definition)
    log = CommitLog(home, "shop", partitions=2)
    log.refresh()
    log.begin(0)
    columns = pa.record_batch({"id": pa.array([LARGE, 2, 3]), "note": pa.array([SCRIPT, IMAGE, "c"])})
    log.take_in([make_rows("shop.orders", columns, ["id"], op=Op.INSERT, mode=Mode.SYNC, timestamp=1000)], 1)
    (writer,) = [sink.name for sink in definition.sinks]
    where = next(q for q, (_, end) in log.topic.ends().items() if end)
    bury(home, "shop", writer, Trouble(f"no column {SCRIPT}{IMAGE}", "data", where, 0, "shop.orders", str(LARGE)))
    status = Status("shop", "following", sources={"shop.orders": SourceStatus("copy", 4, 1, 400, 100)})
    status.sinks[writer] = SinkStatus("stopped", rows=1, skipped=1, lag=2, oldest=1000, error=f"no column {SCRIPT}")
    ledger.report(home, "shop", status.shown())
