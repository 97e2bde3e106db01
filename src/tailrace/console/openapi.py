"""The OpenAPI document, made from the operations and the types that they take and give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tailrace._version import __version__
from tailrace.console.operation import JSON, Operation
from tailrace.console.problems import MEDIA_TYPE, Problem

REFERENCE = "#/components/schemas/{name}"


def document(operations: Sequence[Operation], prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document of these operations, whose paths are below `prefix`."""
    kinds = [Problem, *(kind for one in operations for kind in (one.answer, one.body, one.query) if kind is not None)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    known = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, known, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tailrace", "version": __version__, "description": "A home over HTTP."},
        "servers": [{"url": prefix}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation, known: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.tag],
        "summary": one.about.partition(". ")[0].rstrip("."),
        "description": f"{one.about} Needs the role {one.role}.",
        "parameters": [*_path(one), *_query(one, known, components)],
        "responses": _responses(one, known),
    }
    if one.body is not None or one.takes:
        content: dict[str, Any] = {media: {} for media in one.takes}
        if one.body is not None:
            content = {JSON: {"schema": known[id(one.body)]}, **content}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _path(one: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if name in one.numbers else {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"\{(\w+)\}", one.path)
    ]


def _query(one: Operation, known: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    name = known[id(one.query)]["$ref"].rpartition("/")[2]
    schema = components[name]
    return [
        {"name": field, "in": "query", "required": field in schema.get("required", ()), "schema": about}
        for field, about in schema["properties"].items()
    ]


def _responses(one: Operation, known: dict[int, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {media: {} for media in one.gives}
    if one.answer is not None:
        content = {JSON: {"schema": known[id(one.answer)]}, **content}
    said: dict[str, Any] = {"description": "Done."}
    if content:
        said["content"] = content
    problem = {"description": "A problem.", "content": {MEDIA_TYPE: {"schema": known[id(Problem)]}}}
    statuses = (one.status, *one.statuses) if content else (204,)
    return {**{str(status): said for status in statuses}, "default": problem}
