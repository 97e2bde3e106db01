"""Codecs: decode values in JSON, Avro or Protobuf, by a schema registry or a local schema."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tailrace.adaptors.formats import avro, protobuf
from tailrace.adaptors.formats.schema_registry import HEADER_BYTES, SchemaRegistry, schema_id
from tailrace.errors import BadSetting, NotInstalled, OutOfMemory

Read = Callable[[bytes], Any]
"""Decodes a value.  Any exception means that the bytes are not a value of the schema."""
PACKAGES = {"avro": "fastavro", "protobuf": "google.protobuf"}


class CodecSettings(Protocol):
    """The settings of a source that concern values."""

    @property
    def encoding(self) -> str:
        """The encoding of values: json, avro or protobuf."""

    @property
    def registry(self) -> str | None:
        """The URL of a schema registry."""

    @property
    def schema(self) -> str | None:
        """The path of a file with a schema."""

    @property
    def message(self) -> str | None:
        """The name of the values' message in a Protobuf schema."""

    @property
    def format(self) -> str:
        """The format of records; a codec needs "json"."""


class Codec:
    """Decodes values.  Asks a registry for each schema once."""

    def __init__(self, settings: CodecSettings) -> None:
        self._encoding = settings.encoding
        _check(settings)
        self._registry = SchemaRegistry(settings.registry) if settings.registry is not None else None
        self._by_id: dict[int, Read] = {}
        self._local = _local(settings) if settings.schema is not None else None

    def decoded(self, value: bytes) -> Any:
        """Decode a value; `ValueError` if the bytes are not a value of the schema."""
        read, data = self._reading(value)
        try:
            return read(data)
        except MemoryError as error:
            raise OutOfMemory(f"there is not enough memory to decode a message of {len(data):,} bytes") from error
        except Exception as error:  # decoders raise all sorts of errors for bytes that are no value
            raise ValueError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None

    def is_framed(self, value: bytes) -> bool:
        """Whether a value begins with the id of its schema, and there is a registry to look it up."""
        return self._registry is not None and schema_id(value) is not None

    def _reading(self, value: bytes) -> tuple[Read, bytes]:
        if self._local is not None:
            return self._local, value
        id = schema_id(value) if self._registry is not None else None
        if id is None:
            if self._encoding == "json":
                return msgspec.json.decode, value
            raise ValueError("it does not begin with the id of a schema")
        if id not in self._by_id:
            self._by_id[id] = self._of_registry(id)
        return self._by_id[id], value[HEADER_BYTES:]

    def _of_registry(self, id: int) -> Read:
        assert self._registry is not None
        if self._encoding == "json":
            return msgspec.json.decode
        made_of = avro.of_registry if self._encoding == "avro" else protobuf.of_registry
        return made_of(self._registry, id)


def codec(settings: CodecSettings) -> Codec | None:
    """The codec for the settings; None for plain JSON.  `BadSetting` if they do not go together."""
    if settings.encoding == "json" and settings.registry is None and settings.schema is None:
        return None
    return Codec(settings)


def _check(settings: CodecSettings) -> None:
    if settings.format != "json":
        raise BadSetting("encoding, registry and schema go with format = 'json'; 'bytes' takes values as they are")
    if settings.encoding == "json" and settings.schema is not None:
        raise BadSetting("schema: JSON needs none; encoding = 'avro' or 'protobuf' does")
    if settings.encoding != "json" and (settings.registry is None) == (settings.schema is None):
        raise BadSetting(f"encoding = {settings.encoding!r} needs a registry, or a schema in a file, and not both")
    package = PACKAGES.get(settings.encoding)
    if package is not None and importlib.util.find_spec(package) is None:
        raise NotInstalled(f"{settings.encoding} needs a package: pip install 'tailrace[avro]'")


def _local(settings: CodecSettings) -> Read:
    assert settings.schema is not None
    try:
        content = Path(settings.schema).read_bytes()
        if settings.encoding == "protobuf":
            return protobuf.of_file(content, settings.message)
        return avro.reader(msgspec.json.decode(content), {})
    except BadSetting:
        raise
    except Exception as error:
        raise BadSetting(f"schema: {settings.schema} cannot be used: {type(error).__name__}: {error}") from None
