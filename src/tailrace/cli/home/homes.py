"""`tailrace home`: creates a home, shows it, copies it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import GivenHomeOption, HomeOption, JsonOption
from tailrace.cli.shared.output import counted, print_facts, print_json, size_of
from tailrace.cli.shared.session import opened
from tailrace.errors import AlreadyThere, BadInput

if TYPE_CHECKING:
    from tailrace.home import Home

app = new_group("Homes: where a tailrace lives.")


@app.callback()
def homes(home: HomeOption = None) -> None:
    """Homes: where a tailrace lives."""


@command(app)
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="A folder, or s3://bucket/prefix?table=NAME.")] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a home: a folder, or the DynamoDB table of a home on S3, whose bucket must exist.

    A home that exists already is left as it is.

    Examples:

        tailrace home create ./data
        tailrace home create 's3://my-bucket/tailrace?table=tailrace&region=eu-central-1'
    """
    url = url or home or ""
    if url.startswith("s3:"):
        _make_table(url)
    with opened(url, make=True) as here:
        about = described(here, size=False)
    if as_json:
        print_json(about)
    else:
        print(f"the home {about['url']} is ready: {counted(about['topics'], 'topic')}")


def _make_table(url: str) -> None:
    """Create the table of a home on S3 after its bucket has answered; a table that exists stays as it is."""
    from tailrace.home import s3_options
    from tailrace.storage.aws.buckets import open_bucket
    from tailrace.storage.aws.dynamodb import create_table
    from tailrace.storage.aws.session import connect

    bucket, options = s3_options(url)
    region = options.get("region")
    next(iter(open_bucket(bucket, region=region, endpoint=options.get("endpoint")).list("topics/")), None)
    client = connect("dynamodb", region=region, endpoint=options.get("table_endpoint"))
    try:
        create_table(client, options["table"])
    except AlreadyThere:
        return


def described(home: Home, *, size: bool) -> dict[str, Any]:
    """Return a home as --json prints it; its size only if asked, since on S3 that lists every object."""
    from tailrace.log.groups.group import groups
    from tailrace.storage.tables import Key

    stored = home.store.table.get(Key("$Home")) or {}
    about: dict[str, Any] = {
        "url": home.url,
        "id": home.id,
        "format": stored.get("format"),
        "topics": len(home.topics()),
        "groups": len(home.store.run(groups())),
    }
    if size:
        found = [*home.store.objects.list("topics/")]
        about["objects"] = {"count": len(found), "bytes": sum(one.size for one in found)}
        about["database_bytes"] = database_bytes(home.url)
    return about


def database_bytes(url: str) -> int | None:
    """Return the size of a home's database file and its journal; None if the home is not a folder."""
    from tailrace.home import folder_of

    folder = folder_of(url)
    return sum(path.stat().st_size for path in Path(folder).glob("tailrace.db*")) if folder is not None else None


@command(app)
def info(
    size: Annotated[
        bool | None,
        typer.Option("--size/--no-size", help="Add up the size of what is stored; on S3 this lists every object."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a home: where it is, what is in it, how large it is.

    Examples:

        tailrace home info
        tailrace home info --home ./data --json
    """
    with opened(home) as here:
        local = not here.url.startswith("s3:")
        about = described(here, size=local if size is None else size)
    if as_json:
        print_json(about)
        return
    facts = [(name, about[name]) for name in ("url", "id", "format", "topics", "groups")]
    if about.get("database_bytes") is not None:
        facts.append(("database", size_of(about["database_bytes"])))
    if "objects" in about:
        facts.append(("objects", f"{about['objects']['count']:,}, {size_of(about['objects']['bytes'])}"))
    print_facts(facts)


def _from_and_to(places: list[str], home: str | None) -> tuple[str, str]:
    if len(places) == 1:
        return home or os.environ.get("TAILRACE_HOME", ""), places[0]
    if len(places) != 2:
        raise BadInput(f"`home copy` takes FROM and TO, not {len(places)} places")
    if home:
        raise BadInput(f"--home says {home!r} and FROM says {places[0]!r}; give one of them")
    return places[0], places[1]


@command(app)
def copy(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[FROM] TO", help="The home to copy, unless --home names it, and an empty place for the copy."
        ),
    ],
    home: GivenHomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the present state of a home, from disk to S3, back, or any to any, and read the copy again to verify it.

    Programs may write to the source meanwhile.  If a copy is cut off, the same command continues it; until the copy is
    complete it cannot be opened.  docs/operations/backup.md says what exactly is copied.

    Examples:

        tailrace home copy ./data ./backup/data-monday
        tailrace home copy ./backup/data-monday --home ./data
        tailrace home copy ./data 's3://my-bucket/tailrace?table=tailrace'
    """
    from tailrace.admin.scrub import size
    from tailrace.cli.home.scrub import DAMAGED, show
    from tailrace.cli.shared.progress import Bar

    source, target = _from_and_to(places, home)
    if target.startswith("s3:"):
        _make_table(target)
    with opened(source) as here, Bar("copying", size(here.store)) as bar:
        done = here.copy(target, told=bar.advance)
    if as_json:
        counts = {"topics": done.topics, "streams": done.streams, "objects": done.objects, "bytes": done.bytes}
        print_json({**counts, "resumed": done.resumed, "scrub": done.report.as_json()})
    else:
        things = f"{counted(done.topics, 'topic')}, {counted(done.streams, 'stream')}"
        print(f"copied {things}, {counted(done.objects, 'object')} ({size_of(done.bytes)}) to {target}; the copy:")
        show(done.report, 0)
    if not done.report.clean:
        raise typer.Exit(DAMAGED)
