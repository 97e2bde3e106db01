"""Values as Avro and Protobuf, by a registry and by a schema in a file."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tailrace.errors import BadInput, BadSetting, NotReady, Unavailable
from tests.adaptors.kafka.drive import Drive
from tests.adaptors.kafka.place import Place
from tests.adaptors.kafka.source.test_formats import read
from tests.servers.process import free_ports
from tests.servers.schema_registry import Registry, schema_registry

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip
AT = dt.datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=dt.UTC)
DATA = {"id": 7, "total": Decimal("12.50"), "at": AT, "note": None}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as registry:
        yield registry


def avro(schema: Any, value: Any, id: int | None = None) -> bytes:
    out = io.BytesIO(b"" if id is None else b"\0" + id.to_bytes(4, "big"))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_by_a_registry(place: Place, registry: Registry) -> None:
    key = registry.add("orders-key", json.dumps({"type": "record", "name": "K", "fields": ORDER["fields"][:1]}))
    first = registry.add("orders-value", json.dumps(ORDER))
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "string"}]}
    second = registry.add("orders-value", json.dumps(wider))
    id = avro({"type": "record", "name": "K", "fields": ORDER["fields"][:1]}, {"id": 7}, key)
    records = [(id, avro(ORDER, DATA, first)), (id, avro(wider, {**DATA, "more": "x"}, second)), (id, None)]
    messages = read(place, records * 2, encoding="avro", registry=registry.url)
    assert [message.data for message in messages[:3]] == [DATA, {**DATA, "more": "x"}, {"id": 7}]
    assert {message.keys for message in messages} == {("id",)}
    assert len(registry.asked) == 3, "each schema is asked for once"


def test_avro_with_a_schema_that_another_refers_to(place: Place, registry: Registry) -> None:
    registry.add("shop.Order", json.dumps(ORDER))
    outer = {"type": "record", "name": "Line", "fields": [{"name": "order", "type": "shop.Order"}]}
    refers = [{"name": "shop.Order", "subject": "shop.Order", "version": 1}]
    id = registry.add("lines-value", json.dumps(outer), references=refers)
    whole = {**outer, "fields": [{"name": "order", "type": ORDER}]}
    (message,) = read(place, [(b"k", avro(whole, {"order": DATA}, id))], encoding="avro", registry=registry.url)
    assert message.data == {"_key": "k", "order": DATA}


def test_avro_by_a_schema_in_a_file(place: Place, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    given = {"encoding": "avro", "schema": str(tmp_path / "order.avsc")}
    (message,) = read(place, [(b"k", avro(ORDER, DATA))], **given)
    assert message.data == {"_key": "k", **DATA}


def proto() -> descriptor_pb2.FileDescriptorProto:
    """message Order { int64 id; optional string note; Timestamp at; repeated Line lines; Kind kind }, and another."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="what", number=1, type=kinds.TYPE_STRING, label=1)
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="note", number=2, type=kinds.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    order.field.add(name="lines", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=3)
    order.field.add(name="kind", number=5, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=1)
    order.oneof_decl.add(name="_note")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    return file


def order() -> bytes:
    """One, as bytes."""
    from google.protobuf import timestamp_pb2  # noqa: F401

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pool.Default().FindFileByName("google/protobuf/timestamp.proto").serialized_pb)
    pool.AddSerializedFile(proto().SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id=1 << 60, kind=1)
    made.at.FromDatetime(AT)
    made.lines.add(what="tea")
    return bytes(made.SerializeToString())


EXPECTED = {"_key": "k", "id": 1 << 60, "note": None, "at": AT, "lines": [{"what": "tea"}], "kind": "PAID"}


def test_protobuf_by_a_registry(place: Place, registry: Registry) -> None:
    id = registry.add("orders-value", proto().SerializeToString(), "PROTOBUF")
    frame = b"\0" + id.to_bytes(4, "big")
    records = [(b"k", frame + b"\x02\x02" + order()), (b"k", frame + b"\x04\x02\x00" + b"\x0a\x03tea")]
    messages = read(place, records, encoding="protobuf", registry=registry.url)
    assert [message.data for message in messages] == [EXPECTED, {"_key": "k", "what": "tea"}]


def test_protobuf_by_a_schema_in_a_file(place: Place, tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet(file=[proto()])
    (tmp_path / "order.desc").write_bytes(files.SerializeToString())
    given = {"encoding": "protobuf", "schema": str(tmp_path / "order.desc")}
    (message,) = read(place, [(b"k", order())], **given, message="shop.Order")
    assert message.data == EXPECTED
    with pytest.raises(BadSetting, match=r"the schema has no 'shop\.Nothing'"):
        place.reader(**given, message="shop.Nothing").check()
    with pytest.raises(BadSetting, match="say which one of the schema"):
        place.reader(**given).check()


def test_json_with_the_id_of_its_schema(place: Place, registry: Registry) -> None:
    messages = read(place, [(b"k", b'\0\0\0\0\x07{"a": 1}'), (b"k", b'{"a": 2}')], registry=registry.url)
    assert [message.data["a"] for message in messages] == [1, 2]


@pytest.mark.parametrize("value", [b"{}", b"\0\0\0\0\x01", b"\0\0\0\0\x01" + b"\xff" * 40, b""])
def test_a_value_that_is_no_avro_is_named(place: Place, registry: Registry, value: bytes) -> None:
    registry.add("orders-value", json.dumps(ORDER))
    with pytest.raises(BadInput, match=r"the record at offset 0 of partition 0 of the topic .*cannot be decoded"):
        read(place, [(b"k", value)], encoding="avro", registry=registry.url)


def test_what_is_wrong_with_the_registry(place: Place, registry: Registry) -> None:
    place.make("orders", 1)
    place.send("orders", [(b"k", b"\0\0\0\0\x05x")])
    (port,) = free_ports(1)
    wrong = {
        registry.url: (NotReady, r"has no /schemas/ids/5; is it the one of these topics\?"),
        registry.url.replace("right-", "wrong-"): (NotReady, "refuses this user"),
        f"http://reader:right-password@127.0.0.1:{port}": (Unavailable, "cannot be reached"),
    }
    for url, (kind, text) in wrong.items():
        drive = Drive(place, ["orders"], encoding="avro", registry=url).begin()
        with drive, pytest.raises(kind, match=text) as caught:
            drive.catch_up()
        assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"encoding": "avro"}, "needs a registry, or a schema"),
        ({"encoding": "avro", "registry": "ftp://x"}, "it must be http"),
        ({"encoding": "avro", "schema": "/no/such"}, "cannot be used"),
        ({"registry": "http://x", "format": "debezium"}, "go with format = 'json'"),
    ],
)
def test_settings_that_cannot_be(place: Place, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(BadSetting, match=text):
        place.reader(**settings).check()
