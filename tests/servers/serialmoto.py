"""moto with one request at a time: `python -P serialmoto.py HOST PORT`.

By itself it changes an item attribute by attribute while another thread reads it, as DynamoDB never does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main() -> None:
    """Serve until stopped."""
    host, port = sys.argv[1:]
    app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def serial(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with lock:
            return list(app(environ, start))

    run_simple(host, int(port), serial, threaded=True)


if __name__ == "__main__":
    main()
