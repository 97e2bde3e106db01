"""Metrics of a run for Prometheus, on a port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tailrace.errors import BadSetting

if TYPE_CHECKING:
    from tailrace.pipeline.status import Status


def rendered(status: dict[str, Any]) -> str:
    """A status in Prometheus' text format."""
    name = _escaped(status["pipeline"])
    lines = [
        "# TYPE tailrace_messages_total counter",
        f'tailrace_messages_total{{pipeline="{name}"}} {status["records"]}',
        "# TYPE tailrace_source_delay_seconds gauge",
        f'tailrace_source_delay_seconds{{pipeline="{name}"}} {status["delay"]:.3f}',
    ]
    for key, kind in (
        ("rows", "counter"),
        ("filtered", "counter"),
        ("skipped", "counter"),
        ("lag", "gauge"),
        ("delay", "gauge"),
    ):
        metric = f"tailrace_writer_{key}" + ("_total" if kind == "counter" else "_seconds" if key == "delay" else "")
        lines.append(f"# TYPE {metric} {kind}")
        for writer, sink in status["sinks"].items():
            lines.append(f'{metric}{{pipeline="{name}",writer="{_escaped(writer)}"}} {sink[key]}')
    lines.append("# TYPE tailrace_writer_up gauge")
    for writer, sink in status["sinks"].items():
        up = int(sink["state"] not in ("stopped", "waiting"))
        lines.append(f'tailrace_writer_up{{pipeline="{name}",writer="{_escaped(writer)}"}} {up}')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextmanager
def serve(status: Status, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer GET /metrics while a run goes on; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """The only thing there is."""
            body = rendered(status.shown()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are nobody's news."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise BadSetting(
            f"cannot serve metrics on port {port}: {error.strerror}; choose another: --metrics PORT"
        ) from None
    threading.Thread(target=server.serve_forever, name="tailrace-metrics", daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
