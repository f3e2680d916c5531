"""
The OpenAPI 3.1 document, printed from the same operation records and structs that the server runs on: it cannot say anything else.

Called once, on the first `GET /openapi.json`, and by `docs`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from shoal import __version__
from shoal.api.operations import Operation
from shoal.model.problem import Problem
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

_REF = "#/components/schemas/{name}"
_TEXT_FORMS: dict[type, dict[str, Any]] = {
    Duration: {"type": "string", "description": "A length of time with units ms, s, m, h, d or w.", "examples": ["2h30m", "90s"]},
    Memory: {"type": "string", "description": "An amount of memory with its unit; GB is 10^9, GiB is 2^30.", "examples": ["64GiB"]},
    MemoryRange: {"type": "string", "description": "A device's memory: at least, at most.", "examples": ["80GB..", "24GB..40GB"]},
    CountRange: {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}],
        "description": "A count, or a range out of which one is chosen at start.",
        "examples": [4, "2..4"],
    },
    ArrayList: {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        "description": "The indices of an array, their step, and how many may run at once.",
        "examples": ["0-15:4%2"],
    },
}
_MEDIA = {"json": "application/json", "pack": "application/msgpack"}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def schema_hook(kind: type) -> dict[str, Any]:
    """The schema of a value that is written as text (`model.values`)."""
    try:
        return _TEXT_FORMS[kind]
    except KeyError:
        raise NotImplementedError(f"no schema for {kind}") from None


def plain_path(path: str) -> str:
    """A route's path without convertors: `/v1/jobs/{ref:ref}` as `/v1/jobs/{ref}`."""
    return _PARAMETER.sub(r"{\1}", path)


def document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """The whole document as plain values."""
    kinds = _kinds(operations)
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=schema_hook, ref_template=_REF)
    by_kind = {_name(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(plain_path(operation.path), {})[operation.method.lower()] = _entry(operation, by_kind, components)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Shoal",
            "version": __version__,
            "description": "One control plane for GPUs. Errors are RFC 9457 problems; their codes are in docs/reference/errors.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in sorted({_tag(operation) for operation in operations})],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
            "responses": {"problem": _problem_answer(by_kind)},
        },
    }


def _kinds(operations: tuple[Operation, ...]) -> list[Any]:
    kinds: dict[str, Any] = {_name(Problem): Problem}
    for operation in operations:
        for kind in (operation.body, operation.answer):
            if kind is not None:
                kinds.setdefault(_name(kind), kind)
    return list(kinds.values())


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else repr(kind)


def _tag(operation: Operation) -> str:
    return operation.id.partition(".")[0]


def _entry(operation: Operation, by_kind: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [_tag(operation)],
        "x-shoal-role": operation.need,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, components), *_header_parameters(operation)],
        "responses": _responses(operation, by_kind),
    }
    if operation.description:
        entry["description"] = operation.description
    if operation.need == "open":
        entry["security"] = []
    if operation.takes == "bytes":
        entry["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif operation.takes != "none":
        content = {_MEDIA[operation.takes]: {"schema": by_kind[_name(operation.body)]}}
        entry["requestBody"] = {"required": not operation.optional_body, "content": content}
    return entry


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    (_,), found = msgspec.json.schema_components([operation.query], schema_hook=schema_hook, ref_template=_REF)
    own = found.pop(operation.query.__name__)
    components.update(found)
    shapes = own.get("properties", {})
    return [{"name": name, "in": "query", "required": name in own.get("required", ()), "schema": shapes[name]} for name in shapes]


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in operation.request_headers.items()
    ]


def _responses(operation: Operation, by_kind: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary}
    if operation.gives in _MEDIA and operation.answer is not None:
        good["content"] = {_MEDIA[operation.gives]: {"schema": by_kind[_name(operation.answer)]}}
    elif operation.gives == "bytes":
        good["content"] = {operation.media_type or "application/octet-stream": {}}
    headers = {"X-Request-Id": "The id of this request in the server's log.", **operation.answer_headers}
    good["headers"] = {name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in headers.items()}
    answers = {str(operation.status): good, "default": {"$ref": "#/components/responses/problem"}}
    for status, meaning in operation.other_answers.items():
        answers[str(status)] = {**good, "description": meaning} if status < 300 else {"description": meaning}
    return answers


def _problem_answer(by_kind: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": "What went wrong (RFC 9457)",
        "headers": {"Retry-After": {"description": "Seconds, where waiting helps.", "schema": {"type": "integer"}}},
        "content": {"application/problem+json": {"schema": by_kind[_name(Problem)]}},
    }
