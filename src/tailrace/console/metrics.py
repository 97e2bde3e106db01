"""Metrics for Prometheus: of a run, and of everything in a home.  docs/operations/monitoring.md lists them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.errors import NotThere, TailraceError

if TYPE_CHECKING:
    from tailrace.console.commit_times import CommitTimes
    from tailrace.home import Home
    from tailrace.queue import Stats

HELP = {
    "tailrace_messages_total": "Messages that this run has read from the source into the commit log.",
    "tailrace_source_up": "1 while the source is read, 0 while it is away or the run has stopped.",
    "tailrace_source_delay_seconds": "From the commit of the last change read, at the source, to the commit log.",
    "tailrace_writer_up": "1 while the writer delivers, 0 while it waits for its sink or has stopped.",
    "tailrace_writer_rows_total": "Rows that this run has written into the sink.",
    "tailrace_writer_filtered_total": "Messages that this run has left out, by namespace or by a function.",
    "tailrace_writer_skipped_total": "Messages that this run has passed because they failed (dead letters among them).",
    "tailrace_writer_lag": "Messages of the commit log that the writer has yet to deliver.",
    "tailrace_writer_oldest_seconds": "Age of the oldest message that the writer has yet to deliver; 0 if none.",
    "tailrace_writer_delay_seconds": "From the source into the sink, of the last message delivered.",
    "tailrace_topic_appended_total": "Records ever appended to the topic.",
    "tailrace_topic_records": "Offsets that the topic keeps; of a compacted one some are empty.",
    "tailrace_queue_inserted_total": "Messages ever pushed to the queue, delayed ones among them.",
    "tailrace_queue_emitted_total": "Messages handed to consumers; one that is handed out again counts again.",
    "tailrace_queue_acked_total": "Messages acknowledged.",
    "tailrace_queue_errored_total": "Attempts of handlers that failed.",
    "tailrace_queue_dead_total": "Messages given up, and put with the dead letters.",
    "tailrace_queue_purged_total": "Messages dropped by a purge, or lost to damage.",
    "tailrace_queue_backlog": "Messages in the queue's shards that are not done.",
    "tailrace_queue_running": "Of these, messages that a consumer has.",
    "tailrace_queue_failing": "Of these, messages that have failed and are tried again.",
    "tailrace_queue_delayed": "Messages that wait for their time, outside the shards.",
    "tailrace_queue_oldest_seconds": "Age of the oldest message that is not done; 0 if none.",
    "tailrace_queue_consumers": "Consumers that own shards of the queue.",
    "tailrace_queue_paused": "1 while the queue is paused.",
    "tailrace_group_members": "Members of the consumer group.",
    "tailrace_group_lag": "Records that the consumer group has yet to read.",
    "tailrace_group_oldest_seconds": "Age of the oldest record that the consumer group has yet to read; 0 if none.",
    "tailrace_feed_behind": "Batches of events of the feed that the consumer has yet to handle.",
    "tailrace_feed_stopped": "Partitions of the feed in which an error stops the consumer.",
    "tailrace_feed_dead": "Events among the dead letters of the consumer that no operator has settled.",
    "tailrace_stream_progress_seconds": "Since the group's slowest shard last made progress or was at its end.",
    "tailrace_stream_stopped": "Shards of the table's stream in which an error stops the group.",
    "tailrace_stream_dead": "Changes among the dead letters of the group that no operator has settled.",
    "tailrace_commits_total": "Commits that this server has made for clients since it was started.",
    "tailrace_commit_seconds_total": "The time that these commits took, from the request to the disk or the cloud.",
    "tailrace_commit_p99_seconds": "99 % of the last 1,000 of these commits took no longer.",
}
"""The help text of every metric."""
_log = logging.getLogger("tailrace.console")
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: Mapping[str, str]
    value: float


# --- samples ----------------------------------------------------------------------------------------------------------
def of_run(status: Mapping[str, Any]) -> Iterator[Sample]:
    """Yields the metrics of one pipeline, from the status that its run reports."""
    pipeline = {"pipeline": status["pipeline"]}
    up = status["state"] != "waiting" and not status["state"].startswith(("stopped", "not running"))
    yield Sample("tailrace_messages_total", pipeline, status["records"])
    yield Sample("tailrace_source_up", pipeline, int(up))
    yield Sample("tailrace_source_delay_seconds", pipeline, status["delay"])
    for writer, sink in status["sinks"].items():
        labels = {**pipeline, "writer": writer}
        yield Sample("tailrace_writer_up", labels, int(up and sink["state"] not in ("stopped", "waiting", "ended")))
        for name in ("rows", "filtered", "skipped"):
            yield Sample(f"tailrace_writer_{name}_total", labels, sink[name])
        yield Sample("tailrace_writer_lag", labels, sink["lag"])
        yield Sample("tailrace_writer_oldest_seconds", labels, sink["age"])
        yield Sample("tailrace_writer_delay_seconds", labels, sink["delay"])


def of_home(home: Home) -> Iterator[Sample]:
    """Yields the metrics of everything in a home.  Reads the head of every topic."""
    from tailrace.log.groups.group import Group, groups
    from tailrace.log.groups.lag import describe
    from tailrace.pipeline.operate import ledger

    for name in home.topics():
        with suppress(NotThere):  # deleted since it was listed
            ends = home.topic(name).ends().values()
            yield Sample("tailrace_topic_appended_total", {"topic": name}, sum(end for _, end in ends))
            yield Sample("tailrace_topic_records", {"topic": name}, sum(end - floor for floor, end in ends))
    for group, topic, *_ in home.store.run(groups()):
        with suppress(NotThere):
            log = home.topic(topic)
            state = home.store.run(describe(Group(group, log.log, log.partitions), time.time()))
            labels = {"group": group, "topic": topic}
            yield Sample("tailrace_group_members", labels, len(state.members))
            yield Sample("tailrace_group_lag", labels, state.lag.records)
            yield Sample("tailrace_group_oldest_seconds", labels, round(state.lag.seconds, 3))
    for name in home.queues():
        with suppress(NotThere):
            yield from of_queue(name, home.queue(name).stats())
    yield from _handlers(home)
    for name in ledger.pipelines(home):
        with suppress(NotThere):  # its first run has not reported a status yet
            yield from of_run(ledger.reported(home, name))


def _handlers(home: Home) -> Iterator[Sample]:
    """Yields the metrics of the groups that handle the feed and the streams of tables."""
    for one in home.events().checkpoints.list():
        labels = {"consumer": one.group}
        yield Sample("tailrace_feed_behind", labels, sum(part.behind for part in one.partitions))
        yield Sample("tailrace_feed_stopped", labels, sum(bool(part.error) for part in one.partitions))
        yield Sample("tailrace_feed_dead", labels, one.dead_letters)
    try:
        for table, group in table_groups(home):
            with suppress(NotThere):
                now, labels = home.engine().group(table, group).status(count=False), {"table": table, "group": group}
                yield Sample("tailrace_stream_progress_seconds", labels, round(now.progress_age, 3))
                yield Sample("tailrace_stream_stopped", labels, len(now.errors))
                yield Sample("tailrace_stream_dead", labels, now.dead_letters)
    except TailraceError as error:  # in AWS, tables take rights that a home does not need
        _log.warning("the metrics of change streams cannot be read, and are left out: %s", error)


def table_groups(home: Home) -> Iterator[tuple[str, str]]:
    """Yields each table and group that shares its stream.  Lists the tables only if there is such a group: in AWS that
    takes a right which a home itself does not need."""
    from tailrace.coordination import units

    if any(one.of != "feed" for one in home.store.run(units.groups())):
        engine = home.engine()
        for table in engine.tables():
            with suppress(NotThere):
                yield from ((table, group) for group in engine.groups(table))


def of_commits(times: CommitTimes) -> Iterator[Sample]:
    """Yields the metrics of the commits that a server makes for its clients."""
    for kind, (count, seconds, highest) in times.now().items():
        yield Sample("tailrace_commits_total", {"kind": kind}, count)
        yield Sample("tailrace_commit_seconds_total", {"kind": kind}, round(seconds, 6))
        yield Sample("tailrace_commit_p99_seconds", {"kind": kind}, round(highest, 6))


def of_queue(name: str, now: Stats) -> Iterator[Sample]:
    """Yields the metrics of one queue, from its stats."""
    labels = {"queue": name}
    for counter in ("inserted", "emitted", "acked", "errored", "dead", "purged"):
        yield Sample(f"tailrace_queue_{counter}_total", labels, getattr(now, counter))
    for gauge in ("backlog", "running", "failing", "delayed"):
        yield Sample(f"tailrace_queue_{gauge}", labels, getattr(now, gauge))
    yield Sample("tailrace_queue_oldest_seconds", labels, round(now.oldest_seconds, 3) if now.backlog else 0)
    yield Sample("tailrace_queue_consumers", labels, len(now.consumers))
    yield Sample("tailrace_queue_paused", labels, int(now.paused))


# --- as Prometheus reads it -------------------------------------------------------------------------------------------
def rendered(samples: Iterable[Sample]) -> str:
    """Return samples in Prometheus' text format, those of one metric together."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample)
    lines = []
    for metric, some in found.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        lines += [f"# HELP {metric} {HELP[metric]}", f"# TYPE {metric} {kind}"]
        lines += [f"{metric}{{{_labels(sample.labels)}}} {sample.value}" for sample in some]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
