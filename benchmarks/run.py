"""Ask the questions: `python -m benchmarks.run [names…] [--quick]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import (
    append,
    change_streams,
    database_copy,
    database_follow,
    delta_merge,
    events,
    events_growth,
    feed,
    growth,
    http_batches,
    http_followers,
    http_single,
    kafka_pipeline,
    latency,
    memory,
    pipeline_copy,
    pipeline_follow,
    pipeline_growth,
    queue_backlog,
    queue_cost,
    queue_delay,
    queue_rates,
    queue_takeover,
    read,
    report,
    scrub,
    search_bulk,
    spark_cycle,
    spark_memory,
    spark_read,
    spark_write,
    threads,
    topics,
    upkeep,
)
from benchmarks.harness import ask
from benchmarks.machine import describe

ROOT = Path(__file__).parent
QUESTIONS = {
    "append": append.question,
    "read": read.question,
    "latency": latency.question,
    "threads": threads.question,
    "growth": growth.question,
    "topics": topics.question,
    "memory": memory.question,
    "scrub": scrub.question,
    "upkeep": upkeep.question,
    "upkeep_latency": upkeep.latency,
    "events": events.question,
    "events_growth": events_growth.question,
    "change_streams": change_streams.question,
    "stream_merge": change_streams.merging,
    "feed": feed.question,
    "feed_growth": feed.growth,
    "queue": queue_rates.question,
    "queue_consumers": queue_rates.consumers,
    "queue_delay": queue_delay.question,
    "queue_backlog": queue_backlog.question,
    "queue_takeover": queue_takeover.question,
    "queue_cost": queue_cost.question,
    "http_single": http_single.question,
    "http_batches": http_batches.question,
    "http_followers": http_followers.question,
    "spark_read": spark_read.question,
    "spark_write": spark_write.question,
    "spark_cycle": spark_cycle.question,
    "spark_memory": spark_memory.question,
    "pipeline_copy": pipeline_copy.question,
    "pipeline_follow": pipeline_follow.question,
    "pipeline_growth": pipeline_growth.question,
    "mysql_copy": database_copy.from_mysql,
    "mysql_follow": database_follow.of_mysql,
    "mongodb_copy": database_copy.from_mongodb,
    "mongodb_follow": database_follow.of_mongodb,
    "kafka_pipeline": kafka_pipeline.question,
    "search_bulk": search_bulk.question,
    "delta_merge": delta_merge.question,
}


def main() -> None:
    """Ask what was named, or everything; each answer is printed and kept as soon as it is there."""
    arguments = parse()
    # Stopped from outside, the servers and the folders are to go as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name in arguments.names or QUESTIONS:
        answer(name, arguments, console)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *QUESTIONS], help="which questions; all of them if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="few records and rounds; RESULTS.md is left alone")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "build", help="where every side keeps its data")
    return parser.parse_args()


def answer(name: str, arguments: argparse.Namespace, console: Console) -> None:
    """Ask one question on a fresh folder."""
    arguments.data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=arguments.data))
    try:
        machine = describe(folder)
        question = QUESTIONS[name](arguments.quick)
        with console.status(name) as status:
            results = ask(question, folder, lambda text: status.update(f"{name}: {text}"))
        report.show(question, results, machine, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not arguments.quick:
        report.save(report.section(question, results, machine), ROOT / "RESULTS.md", list(QUESTIONS))


if __name__ == "__main__":
    main()
