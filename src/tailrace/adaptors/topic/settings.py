"""Settings of the tailrace adaptor: what a pipeline file says of its source and sink."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tailrace.adaptors.contract import Located, Settings

HomeUrl = Annotated[Located, Meta(description="the home the topics are in: ./folder, file:///…, s3://bucket/…?table=…")]


class TopicSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics whose records are copied, and then followed.  Each topic is a namespace."""

    home: HomeUrl
    poll_seconds: Annotated[float, Meta(description="seconds between looks for new records", ge=0.01, le=1)] = 0.1
    discover: Annotated[float, Meta(description="seconds between looks for new topics", ge=0.1)] = 5.0


class TopicSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics to which messages are appended as JSON, with their ids as keys."""

    home: HomeUrl
    topic: Annotated[
        str | None, Meta(description="the topic for all messages; if not given each namespace has one of its name")
    ] = None
    partitions: Annotated[int, Meta(description="of topics that are made", ge=1, le=128)] = 8
