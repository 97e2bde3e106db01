"""`tailrace serve`: a home over HTTP, for browsers and for programs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.session import note, opened
from tailrace.errors import BadSetting, NotInstalled

if TYPE_CHECKING:
    from tailrace.console.server import Started

HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; only this machine.")]
PortOption = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="A file with lines ROLE NAME TOKEN; a role is viewer or operator."
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A host name under which a proxy sends requests."),
]


def register(app: typer.Typer) -> None:
    """Add `tailrace serve`."""
    command(app, "serve")(serve)


def serve(
    host: HostOption = "127.0.0.1",
    port: PortOption = 7117,
    token_file: TokenFileOption = None,
    allow_host: AllowHostOption = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every change, also with an operator's token.")
    ] = False,
    max_body: Annotated[
        str, typer.Option("--max-body", metavar="SIZE", help="The largest body of a request.")
    ] = "64MiB",
    max_streams: Annotated[
        int,
        typer.Option("--max-streams", metavar="N", min=1, help="The most open streams and long polls of one client."),
    ] = 64,
    max_all_streams: Annotated[
        int,
        typer.Option(
            "--max-all-streams", metavar="N", min=1, help="The most open streams and long polls of all clients."
        ),
    ] = 4096,
    poll: Annotated[
        str, typer.Option("--poll", metavar="TIME", help="How often to ask S3 and DynamoDB for new records.")
    ] = "1s",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a home over HTTP: an API for programs in any language, metrics, and pages for a browser.

    Only this machine can reach it, with the token that it prints.  For other machines give --host and --token-file, and
    put a proxy that speaks TLS in front.  docs/guide/http.md has the API.

    Examples:

        tailrace serve
        tailrace serve --port 0 --read-only
        tailrace serve --host 0.0.0.0 --token-file tokens --allow-host tailrace.example.org
    """
    try:
        from tailrace.console.limits import Limits
        from tailrace.console.server import Serving
        from tailrace.console.server import serve as run
    except ImportError as error:
        raise NotInstalled(f"{error.name} is missing: pip install 'tailrace[console]'") from None
    from tailrace.cli.home.checks import findings
    from tailrace.home import DEFAULT

    body, seconds = values.size(max_body), values.seconds(poll)
    if body > 1 << 30:
        raise BadSetting(f"--max-body {max_body} is over 1 GiB, which a request is held in memory for")
    limits = Limits(body_bytes=body, streams_per_client=max_streams, streams=max_all_streams, poll_seconds=seconds)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    with opened(home):
        pass  # a folder that is no home is refused
    given = Serving(
        host=host, port=port, token_file=token_file, allow_hosts=tuple(allow_host or ()), read_only=read_only,
        limits=limits,
    )  # fmt: skip
    run(home or DEFAULT, given, lambda started: _print(started, token_file, as_json), findings)


def _print(started: Started, token_file: Path | None, as_json: bool) -> None:
    """Print the server's address and token: for people, or on one line for the program that has started it."""
    if as_json:
        facts = {"home": started.home, "address": started.address, "token": started.token}
        print(json.dumps({**facts, "read_only": started.read_only}), flush=True)
        return
    note(f"serving {started.home}{' (read only)' if started.read_only else ''} on {started.address}")
    if started.token is not None:
        note(f"open    {started.address}?token={started.token}")
        note(f"or send Authorization: Bearer {started.token}")
    else:
        note(f"tokens are those of {token_file}")
    if not started.loopback:
        note("this is not encrypted: let other machines in only through a proxy that speaks TLS")
    note("Ctrl-C ends")
