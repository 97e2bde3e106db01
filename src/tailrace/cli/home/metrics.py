"""`tailrace metrics`: metrics for Prometheus, printed or served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_json
from tailrace.cli.shared.session import note, opened
from tailrace.console.metrics import HELP, MEDIA_TYPE, Sample, of_home, of_run, rendered
from tailrace.errors import BadSetting

__all__ = ["HELP", "metrics", "of_home", "of_run", "register", "rendered", "serve"]


def register(app: typer.Typer) -> None:
    """Add `tailrace metrics`."""
    command(app, "metrics")(metrics)


def metrics(
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", help="Serve the metrics on this port of 127.0.0.1, until Ctrl-C."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print metrics of a home's topics, consumer groups, queues, pipelines, and consumers of the feed and of change
    streams, as Prometheus reads them.

    Each look reads the head of every topic: with many topics, do not look every second.

    Examples:

        tailrace metrics
        tailrace metrics --port 9100
        tailrace metrics --json
    """
    with opened(home) as here:
        if port is not None:
            with serve(lambda: of_home(here), port) as bound:
                note(f"metrics of {here.url} on http://127.0.0.1:{bound}/metrics, until Ctrl-C")
                threading.Event().wait()
        samples = list(of_home(here))
    if as_json:
        print_json([sample._asdict() for sample in samples])
    else:
        print(rendered(samples), end="")


@contextmanager
def serve(look: Callable[[], Iterable[Sample]], port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve the metrics that `look` returns, under any path, for the length of a block; yields the port."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with the metrics, or with 503 if the look fails."""
            try:
                code, body = 200, rendered(look()).encode()
            except Exception as error:  # a home that is away is a failed look, and the next one may succeed
                code, body = 503, f"{error}\n".encode()
            self.send_response(code)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for each request."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSetting(f"cannot serve metrics on port {port}: {why}; choose another") from None
    threading.Thread(target=server.serve_forever, name="tailrace-metrics", daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
