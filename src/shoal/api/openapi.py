"""
The OpenAPI 3.1 document, printed from the same operation records and structs that the server runs on: it cannot say anything else.

Called once, on the first `GET /openapi.json`, and by `docs`.
"""

from __future__ import annotations

import re
from typing import Any

from shoal import __version__
from shoal.api.operations import Operation
from shoal.api.schemas import Components
from shoal.model.problem import Problem

_MEDIA = {"json": "application/json", "pack": "application/msgpack"}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def plain_path(path: str) -> str:
    """A route's path without convertors: `/v1/jobs/{ref:ref}` as `/v1/jobs/{ref}`."""
    return _PARAMETER.sub(r"{\1}", path)


def document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """The whole document as plain values."""
    components = Components()
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(plain_path(operation.path), {})[operation.method.lower()] = _entry(operation, components)
    problem = _problem_answer(components)
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
            "schemas": dict(sorted(components.schemas.items())),
            "responses": {"problem": problem},
        },
    }


def _tag(operation: Operation) -> str:
    return operation.id.partition(".")[0]


def _entry(operation: Operation, components: Components) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [_tag(operation)],
        "x-shoal-role": operation.need,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, components), *_header_parameters(operation)],
        "responses": _responses(operation, components),
    }
    if operation.description:
        entry["description"] = operation.description
    if operation.need == "open":
        entry["security"] = []
    if operation.takes == "bytes":
        entry["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif operation.takes != "none":
        content = {_MEDIA[operation.takes]: {"schema": components.of(operation.body)}}
        entry["requestBody"] = {"required": not operation.optional_body, "content": content}
    return entry


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation, components: Components) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": required, "schema": schema}
        for name, required, schema in components.fields_of(operation.query)
    ]


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in operation.request_headers.items()
    ]


def _responses(operation: Operation, components: Components) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary}
    if operation.gives in _MEDIA and operation.answer is not None:
        good["content"] = {_MEDIA[operation.gives]: {"schema": components.of(operation.answer)}}
    elif operation.gives == "bytes":
        good["content"] = {operation.media_type or "application/octet-stream": {}}
    headers = {"X-Request-Id": "The id of this request in the server's log.", **operation.answer_headers}
    good["headers"] = {name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in headers.items()}
    answers = {str(operation.status): good, "default": {"$ref": "#/components/responses/problem"}}
    for status, meaning in operation.other_answers.items():
        answers[str(status)] = {**good, "description": meaning} if status < 300 else {"description": meaning}
    return answers


def _problem_answer(components: Components) -> dict[str, Any]:
    return {
        "description": "What went wrong (RFC 9457)",
        "headers": {"Retry-After": {"description": "Seconds, where waiting helps.", "schema": {"type": "integer"}}},
        "content": {"application/problem+json": {"schema": components.of(Problem)}},
    }
