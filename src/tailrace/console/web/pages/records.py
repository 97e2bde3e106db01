"""Records: browsing and searching a topic, one record, and producing one."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlencode

import msgspec

from tailrace.console.api import records as api
from tailrace.console.data import Base64, Data
from tailrace.console.reading import ReadRecord, RecordHeader
from tailrace.console.web import payload
from tailrace.console.web.page import Ask, Field, Pages, Shown, Went
from tailrace.console.web.pages.scan import Scan, scan, wanted
from tailrace.console.web.visit import Visit, path_to, whole
from tailrace.errors import BadInput, NotThere
from tailrace.log.topic import Topic

pages = Pages()
LIMITS = ("25", "50", "100", "500")


def _up(topic: str) -> tuple[tuple[str, str], ...]:
    return (("Topics", "/topics"), (topic, path_to("topics", topic)))


@pages.page("/topics/{topic}/records")
async def browse(visit: Visit) -> Shown:
    """Show the records from a place on: all, or those that a search finds."""
    topic = await visit.served.topic(visit.path["topic"])
    asked = {name: visit.query.get(name, "") for name in ("from", "partition", "q", "key")}
    limit = visit.whole("limit", 50, least=1, most=500)
    partition = whole(asked["partition"], "partition", -1)
    start = asked["from"].strip() or "earliest"
    fits = wanted(asked["q"].strip(), asked["key"])
    found, error = Scan(), ""
    try:
        if start.isdecimal() and partition < 0 and topic.partitions == 1:
            partition = 0
        found = await scan(visit, topic, None if partition < 0 else partition, start, fits, limit)
    except BadInput as refused:
        error = str(refused)
    about = {
        "topic": topic.name, "partitions": topic.partitions, "asked": asked, "limit": str(limit), "limits": LIMITS,
        "scan": found, "searches": fits is not None, "error": error, "next": visit.address(**{"from": found.cursor}),
    }  # fmt: skip
    return Shown("records.html", f"Records of {topic.name}", about, _up(topic.name), "topics", 400 if error else 200)


async def _one(visit: Visit, topic: Topic) -> ReadRecord:
    partition, offset = visit.number("partition"), visit.number("offset")
    found = await scan(visit, topic, partition, str(offset), None, 1)
    if not found.found or found.found[0].offset != offset:
        after = f"; the next one is {found.found[0].offset:,}" if found.found else ""
        raise NotThere(f"there is no record at offset {offset:,} of partition {partition}{after}")
    return found.found[0]


@pages.page("/topics/{topic}/records/{partition}/{offset}")
async def show_record(visit: Visit) -> Shown:
    """Show one record, whole."""
    topic = await visit.served.topic(visit.path["topic"])
    record = await _one(visit, topic)
    ends = await visit.served.run(topic.ends)
    floor, end = ends[record.partition]
    view = payload.view_of(record.value, visit.query.get("view"))
    about = {
        "topic": topic.name, "record": record, "view": view, "views": payload.VIEWS, "floor": floor, "end": end,
        "text": payload.whole(record.value, view), "bytes": len(payload.raw(record.value)),
        "key_text": payload.whole(record.key, "text"),
        "curl": as_curl(visit, topic.name, record), "python": as_python(visit, topic.name, record),
        "again": as_append(visit, topic.name, record),
    }  # fmt: skip
    title = f"Record {record.partition}:{record.offset}"
    return Shown(
        "record.html", title, about, (*_up(topic.name), ("Records", path_to("topics", topic.name, "records"))), "topics"
    )


# --- copied as a command ----------------------------------------------------------------------------------------------
def _address(visit: Visit, topic: str) -> str:
    host = visit.request.headers.get("host", "127.0.0.1:7117")
    return f"http://{host}/api/v1{path_to('topics', topic, 'records')}"


_TOKEN = '-H "Authorization: Bearer $TAILRACE_TOKEN"'


def as_curl(visit: Visit, topic: str, record: ReadRecord) -> str:
    """Return a shell command that reads this record."""
    query = urlencode({"partition": record.partition, "from": record.offset, "limit": 1})
    return f"curl {_TOKEN} \\\n  {shlex.quote(f'{_address(visit, topic)}?{query}')}"


def as_append(visit: Visit, topic: str, record: ReadRecord) -> str:
    """Return a shell command that appends the record once more, with its key and headers, to its partition."""
    one: dict[str, object] = {"key": record.key, "value": record.value}
    if record.headers:
        one["headers"] = record.headers
    body = json.dumps(msgspec.to_builtins({"records": [one]}))  # in ASCII: a command has no invisible characters
    lines = (
        _TOKEN,
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(body)}",
        shlex.quote(f"{_address(visit, topic)}?partition={record.partition}"),
    )
    return "curl " + " \\\n  ".join(lines)


def as_python(visit: Visit, topic: str, record: ReadRecord) -> str:
    """Return a Python program that reads this record."""
    return (
        "import tailrace\n\n"
        f"with tailrace.open({visit.served.home.url!r}) as home:\n"
        f"    topic = home.topic({topic!r})\n"
        f"    record = next(topic.records({record.partition}, {record.offset}))\n"
        "    print(record.key, record.value)"
    )


# --- producing --------------------------------------------------------------------------------------------------------
def typed(text: str, kind: str) -> Data:
    """Return what was typed as text or base64 as the data of a record; None for null."""
    if kind == "null":
        return None
    if kind == "base64":
        try:
            return Base64(msgspec.convert(text.strip(), bytes))
        except msgspec.ValidationError:
            raise BadInput("what was typed is no base64") from None
    if kind == "json" and not payload.is_json(text):
        raise BadInput("the value is no JSON; choose Text to send it as it is")
    return text.replace("\r\n", "\n")


@pages.action("/topics/{topic}/produce")
async def produce(visit: Visit) -> Ask | Went:
    """Append the record that the form has."""
    topic = await visit.served.topic(visit.path["topic"])
    if not visit.form:
        kinds = (("json", "JSON"), ("text", "Text"), ("base64", "Base64"), ("null", "Null: a tombstone"))
        fields = (
            Field("key", "Key", hint="Records of one key are in one partition. Empty: no key."),
            Field("kind", "The value is", "json", "select", options=kinds),
            Field("value", "Value", visit.query.get("value", ""), "area"),
            Field("headers", "Headers", "", "area", "One on each line: name: value"),
            Field("partition", "Partition", "", "number", f"0 to {topic.partitions - 1}; empty: by the key."),
            Field("why", "Reason", hint="Kept in the audit list."),
        )
        say = ("The record is durable when the next page appears.",)
        return Ask(
            f"Produce to {topic.name}",
            "Append the record",
            path_to("topics", topic.name),
            say,
            fields,
            section="topics",
        )
    headers: list[RecordHeader] = []
    for line in visit.field("headers").splitlines():
        name, colon, content = line.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"a header is `name: value`, not {line[:60]!r}")
        headers.append(RecordHeader(name.strip(), content.strip()))
    value = typed(visit.form.get("value", ""), visit.field("kind"))
    record = api.NewRecord(value=value, key=visit.form.get("key") or None, headers=headers)
    partition = whole(visit.field("partition"), "partition", -1, most=topic.partitions - 1)
    query = api.AppendQuery(partition=None if partition < 0 else partition)
    async with visit.served.actions.noted(visit, "append record", visit.field("why"), topic=topic.name):
        done = await api.append_records(visit, query, api.NewRecords([record]))
    assert done.spans is not None
    span = done.spans[0]
    to = path_to("topics", topic.name, "records", span.partition, span.offset)
    return Went(to, f"Appended at offset {span.offset:,} of partition {span.partition}.")
