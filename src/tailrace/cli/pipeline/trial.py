"""`tailrace init`, `about`, `test`: writing a pipeline and trying it before it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from tailrace.cli.pipeline.named_pipeline import message_as_json
from tailrace.cli.pipeline.run import DefaultFileArgument, loaded
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_facts, print_json, print_table
from tailrace.cli.shared.session import note
from tailrace.errors import AlreadyThere, BadInput, NotThere

if TYPE_CHECKING:
    from tailrace.adaptors.contract import Adaptor
    from tailrace.pipeline.define.definition import Definition

SAMPLE_MESSAGES = 10


def register(app: typer.Typer) -> None:
    """Add `tailrace init`, `about` and `test`."""
    command(app, "init")(init)
    command(app, "about")(about)
    command(app, "test")(try_out)


def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The adaptor to read from.")],
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The adaptor to write to.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="The file to write.")] = Path("pipeline.py"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a pipeline's file to start from, with a comment on each setting.

    Examples:

        tailrace init postgres file
        tailrace init postgres postgres --file shop.py
    """
    if file.exists() and not force:
        raise AlreadyThere(f"{file} exists already; choose another --file, or --force")
    from tailrace.pipeline.define.builder import check_file_name

    check_file_name(file)
    text = template(file.stem, source, sink)
    file.write_text(text)
    unset = re.findall(r"\$\{(\w+)\}", text)
    if as_json:
        print_json({"file": str(file), "environment": unset})
        return
    asks = f"export {' '.join(f'{name}=…' for name in unset)}, or put the values into it" if unset else "look at it"
    note(f"wrote {file}; {asks}, then: tailrace test {file}")


def template(name: str, source: str, sink: str) -> str:
    """Return the text of a commented pipeline file."""
    from tailrace.adaptors.registry import adaptor

    read, write = adaptor(source), adaptor(sink)
    if read.reader is None:
        raise BadInput(f"{source!r} cannot be read from; `tailrace about` says which can")
    if write.writer is None:
        raise BadInput(f"{sink!r} cannot be written to; `tailrace about` says which can")
    return "\n".join(
        [
            f'"""{read.about} → {write.about}"""',
            "",
            "import tailrace",
            "from tailrace.pipeline.functions import omit",
            "",
            "pipeline = (",
            f'    tailrace.pipeline("{name}")',
            "    .source(",
            f'        "{source}",',
            *_commented(read.reader_settings, "source"),
            '        namespace=r".*",  # a regular expression: which tables, files or topics',
            "    )",
            "    .branch(",
            '        namespace=r".*",  # of those, which go into this sink',
            "    )",
            '    .transform(omit("a_field_nobody_needs"))  # or your own: message -> message | None',
            "    .save(",
            f'        "{sink}",',
            *_commented(write.writer_settings, "sink"),
            '        on_error="stop",  # or "dead_letter", "skip"',
            "    )",
            ")",
            "",
        ]
    )


def _commented(settings: Any, end: str) -> list[str]:
    out = []
    for field in fields_of(settings):
        note = f"{field.type}: {field.about}" if field.about else field.type
        start = f'"${{{end}_{field.name}}}"'.upper() if field.type == "str" else "..."
        line = f"{field.name}={start if field.required else repr(field.default)},  # {note}"
        out.append(f"        {line}" if field.required else f"        # {line}")
    return out


def fields_of(settings: Any) -> list[SettingField]:
    """Return the settings of an adaptor's reader or writer, which `tailrace about` lists."""
    import msgspec

    out = []
    for field in msgspec.structs.fields(settings) if settings is not None else ():
        default = None if field.required or field.default is msgspec.NODEFAULT else field.default
        out.append(SettingField(field.encode_name, *typed(field.type), default, field.required))
    return out


class SettingField(NamedTuple):
    """A setting of an adaptor."""

    name: str
    type: str
    about: str
    default: Any
    required: bool


def typed(kind: Any) -> tuple[str, str]:
    """Return the name of a setting's type, and the description of the setting, for `tailrace about`."""
    about = ""
    if get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        about = next((m.description for m in metas if getattr(m, "description", None)), "")
    return _called(kind), about


def _called(kind: Any) -> str:
    """Return a type as people write it: a choice is its words, not Python's `Literal`."""
    if get_origin(kind) is Annotated:
        return _called(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return " | ".join(map(_called, get_args(kind)))
    if isinstance(kind, type) and not get_args(kind):
        return "None" if kind is type(None) else kind.__name__
    return str(kind).replace("typing.", "")


def about(
    name: Annotated[
        str | None, typer.Argument(metavar="[ADAPTOR]", help="Show this adaptor, with its settings.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which adaptors there are, what each can do, its settings and its guarantee.

    Examples:

        tailrace about
        tailrace about postgres
    """
    from tailrace.adaptors.registry import adaptor, adaptors, broken

    found = list(adaptors().values()) if name is None else [adaptor(name)]
    if as_json:
        print_json([described(a) for a in found] if name is None else described(found[0]))
    elif name is None:
        yes = {True: "yes", False: ""}
        shown = map(described, found)
        rows = [(d["name"], yes[d["reads"]], yes[d["follows"]], d["guarantee"] or "", d["about"]) for d in shown]
        print_table(("adaptor", "reads", "follows", "writes", "about"), rows)
        for other, why in broken().items():
            note(f"{other} cannot be used: {why}")
    else:
        _print(found[0])


def described(adaptor: Adaptor) -> dict[str, Any]:
    """Return an adaptor as `tailrace about --json` prints it."""
    ends = {"source": adaptor.reader_settings, "sink": adaptor.writer_settings}
    return {
        "name": adaptor.name,
        "about": adaptor.about,
        "limits": adaptor.limits,
        "reads": adaptor.reader is not None,
        "follows": adaptor.reader is not None and adaptor.reader.follows,
        "guarantee": adaptor.writer.guarantee if adaptor.writer is not None else None,
        "settings": {
            end: [field._asdict() for field in fields_of(settings)]
            for end, settings in ends.items()
            if settings is not None
        },
    }


def _print(adaptor: Adaptor) -> None:
    shown = described(adaptor)
    yes = {True: "yes", False: "no", None: "cannot be written to"}
    print_facts(
        (k, yes.get(shown[k], shown[k]))
        for k in ("name", "about", "reads", "follows", "guarantee", "limits")
        if shown[k] != ""
    )
    for end, settings in shown["settings"].items():
        print(f"\nas a {end}:")
        rows = [
            (s["name"], s["type"], "(must be set)" if s["required"] else repr(s["default"]), s["about"])
            for s in settings
        ]
        print_table(("setting", "type", "default", "about"), rows)


def try_out(file: DefaultFileArgument = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Connect to both ends of a pipeline and pass ten messages through its functions; nothing is written.

    Examples:

        tailrace test
        tailrace test shop.py
    """
    definition = loaded(file, home)
    definition.check()
    definition.check_settings()
    count, found = sampled(definition)
    if as_json:
        print_json(found)
        return
    for sink, messages in found.items():
        print(f"{sink}: {len(messages)} of {count} sampled messages would be written")
        for message in messages:
            print("  " + json.dumps(message, ensure_ascii=False))
    note("both ends answer; nothing was written")


def sampled(definition: Definition) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Read the first messages of a pipeline's source for `tailrace test`; return how many there are, and those that
    would reach each writer."""

    from tailrace.adaptors.registry import make_reader, make_writer
    from tailrace.adaptors.rows.rows import messages_of
    from tailrace.pipeline.define.definition import unmatched

    reader = make_reader(definition.source.adaptor, definition.source.checked())
    try:
        reader.check()
        wanted = re.compile(definition.source.namespace)
        there = [namespace.name for namespace in reader.namespaces()]
        if told := unmatched("the source", definition.source.namespace, there):
            raise NotThere(told)
        names = [name for name in there if wanted.search(name)]
        for sink in definition.sinks:
            if told := unmatched(f"the writer {sink.name!r}", sink.namespace, names):
                note(told)
        reader.check_namespaces(names)
        batches = _some(reader, names)
    finally:
        reader.close()
    out: dict[str, list[dict[str, Any]]] = {}
    for sink in definition.sinks:
        wanted = re.compile(sink.namespace)
        rows = [b for b in batches if wanted.search(b.schema.metadata[b"namespace"].decode())]
        for function in sink.functions:
            rows = [result for batch in rows for result in _passed(sink.name, function, batch)]
        writer = make_writer(sink.adaptor, sink.checked())
        try:
            writer.check()
            writer.try_out(rows)
        finally:
            writer.close()
        messages = [message_as_json(m) for batch in rows for m in messages_of(batch)]
        out[sink.name] = [{name: m[name] for name in ("namespace", "id", "op", "data")} for m in messages]
    return sum(batch.num_rows for batch in batches), out


def _passed(writer: str, function: Any, batch: Any) -> Any:
    """Return what a function makes of some messages; if it raises, raise `BadInput` that names the message."""
    from tailrace.adaptors.rows.rows import messages_of

    try:
        return function(batch)
    except Exception as error:
        at = list(messages_of(batch))[min(getattr(error, "row", 0), batch.num_rows - 1)]
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"a function of the writer {writer!r} fails at {at.namespace}, id {at.id}: {what}") from error


def _some(reader: Any, names: list[str]) -> list[Any]:
    """Return the first rows of some namespaces: ten at most, from as many namespaces as possible."""
    batches, left = [], SAMPLE_MESSAGES
    for n, name in enumerate(names):
        if left:
            each = max(1, left // (len(names) - n))
            for batch in reader.sample(name, 1000):
                batches.append(batch.slice(0, each))
                left -= batches[-1].num_rows
                break
    return [b for b in batches if b.num_rows]
