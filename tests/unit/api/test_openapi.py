"""The OpenAPI document: well formed, complete, and nothing in it that is not in the operation table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from json_schema import faults, resolve
from shoal.api.openapi import document, plain_path
from shoal.api.operations import Operation
from shoal.api.table import OPERATIONS
from shoal.model.codec import encode_json
from shoal.model.job import ArrayPlace, GpuAsk, Job, JobSpec, JobState, Resources
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

DOCUMENT: dict[str, Any] = json.loads(encode_json(document(OPERATIONS)))


def entries() -> Iterator[tuple[Operation, dict[str, Any]]]:
    for operation in OPERATIONS:
        yield operation, DOCUMENT["paths"][plain_path(operation.path)][operation.method.lower()]


def every(node: Any, key: str) -> Iterator[Any]:
    """All values under `key`, anywhere."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        for part in node.values():
            yield from every(part, key)
    elif isinstance(node, list):
        for part in node:
            yield from every(part, key)


def test_it_is_openapi_31_with_what_that_must_have() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(DOCUMENT["info"])
    for path in DOCUMENT["paths"]:
        assert path.startswith("/")
        assert ":" not in re.sub(r":(batch|cancelByKey|cancel|hold|release|requeue|resize|drain|cordon|resume)$", "", path)


def test_every_reference_points_at_something() -> None:
    references = [value for value in every(DOCUMENT, "$ref") if isinstance(value, str)]
    assert references
    for reference in references:
        resolve(reference, DOCUMENT)


def test_operations_and_entries_are_the_same_set() -> None:
    printed = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert printed == {(plain_path(operation.path), operation.method.lower()) for operation in OPERATIONS}
    ids = [operation.id for operation in OPERATIONS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("operation", "entry"), list(entries()), ids=lambda part: part.id if isinstance(part, Operation) else "")
def test_each_entry_says_what_its_operation_is(operation: Operation, entry: dict[str, Any]) -> None:
    assert entry["operationId"] == operation.id
    assert entry["summary"] == operation.summary
    in_path = {parameter["name"] for parameter in entry["parameters"] if parameter["in"] == "path"}
    assert in_path == set(re.findall(r"{(\w+)}", plain_path(operation.path)))
    in_query = {parameter["name"] for parameter in entry["parameters"] if parameter["in"] == "query"}
    assert in_query == set(operation.query.__struct_encode_fields__)
    assert ("requestBody" in entry) == (operation.takes != "none")
    assert str(operation.status) in entry["responses"]
    assert entry["responses"]["default"] == {"$ref": "#/components/responses/problem"}
    assert (entry.get("security") == []) == (operation.need == "open")


def test_a_full_spec_and_its_job_fit_their_schemas() -> None:
    spec = JobSpec(
        run=("python", "train.py"),
        nodes=CountRange(2, 4),
        gpus=GpuAsk(count=8, model=("h100",), memory=MemoryRange(80 * 10**9)),
        memory=Memory(2**36),
        time=Duration(5_400_000),
        any_of=(Resources(nodes=CountRange(1, 1)),),
        array=ArrayList("0-9%2", tuple(range(10)), 2),
    )
    place = ArrayPlace(array=1, array_id="a", index=0, count=10)
    job = Job(
        id="j",
        number=1,
        project="default",
        owner="user/a",
        spec=spec,
        queue="q",
        state=JobState.QUEUED,
        array=place,
        created_ms=1,
        queued_ms=1,
    )
    for record in (spec, job):
        schema = {"$ref": f"#/components/schemas/{type(record).__name__}"}
        assert faults(json.loads(encode_json(record)), schema, DOCUMENT) == []


def test_the_checker_sees_what_does_not_fit() -> None:
    schema = {"$ref": "#/components/schemas/JobSpec"}
    assert faults({"nodez": 1}, schema, DOCUMENT)
    assert faults({"priority": "high"}, schema, DOCUMENT)
    assert faults({"gpus": {"per": "rack"}}, schema, DOCUMENT)
