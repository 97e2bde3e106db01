"""Settings of the http adaptor: what a pipeline's file says about its sink."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tailrace.adaptors.contract import PathMark, Settings, secret


class HttpSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint to which the sink posts every message: at least once, in order for each document."""

    url: Annotated[
        str,
        secret("where to post: https://example.com/hooks; with {namespace} in its path each namespace has its own"),
    ]
    secret: Annotated[
        str | None,
        secret("signs each request (HMAC-SHA256): whsec_… in base64, or any text; two with a space while one follows "
               "the other"),
    ] = None  # fmt: skip
    authorization: Annotated[str | None, secret("the header Authorization: 'Bearer …'")] = None
    headers: Annotated[dict[str, str], secret("further headers of each request")] = {}
    batch_rows: Annotated[
        int, Meta(description="the most messages in one request; 1: each alone, as an object", ge=1, le=10_000)
    ] = 1
    batch_bytes: Annotated[int, Meta(description="about the most bytes in one request", ge=1024)] = 1024 * 1024
    requests: Annotated[
        int, Meta(description="requests at a time; those of one document still follow each other", ge=1, le=64)
    ] = 4
    timeout: Annotated[float, Meta(description="seconds to wait for an answer", gt=0)] = 30.0
    patience: Annotated[
        float, Meta(description="seconds to try a request again before the pipeline says that it waits", ge=0)
    ] = 60.0
    setup: Annotated[
        tuple[int, ...],
        Meta(description="statuses that are about the endpoint and no message: the pipeline stops and says so"),
    ] = (401, 403, 404, 405, 407)
    ca: Annotated[
        str | None, PathMark(), Meta(description="the authority of the endpoint's certificate, a PEM file")
    ] = None
