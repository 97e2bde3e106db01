"""Webhooks: posts messages to an endpoint, signed, in order for each document.

Read in this order: settings, signature.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.http.settings import HttpSink
from tailrace.adaptors.http.sink.writer import HttpWriter

adaptor = Adaptor(
    name="http",
    about="webhooks: every message posted as JSON, signed, at least once and in order for each document, with a key by "
    "which a receiver knows a repeat",
    writer=HttpWriter,
    writer_settings=HttpSink,
    limits="not sent: truncates, drops and renames of whole tables; proxies of the environment are not used "
    "(docs/guide/webhooks.md)",
    example='url = "https://example.com/hooks/orders"\nsecret = "${WEBHOOK_SECRET}"',
)
