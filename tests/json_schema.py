"""
A small JSON Schema checker for tests: the keywords that `msgspec` and `api.openapi` write, and no others.

An unknown keyword fails the test, so nothing is passed over in silence. A library would bring a dozen packages for these few.
"""

from __future__ import annotations

from typing import Any

KNOWN = (
    {"$ref", "anyOf", "type", "enum", "const", "minimum", "maximum"}
    | {"properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"}
    | {"title", "description", "default", "examples", "discriminator", "contentEncoding"}
)
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults(value: Any, schema: dict[str, Any], document: dict[str, Any], where: str = "") -> list[str]:
    """What is wrong with `value` by `schema`, whose references lie in `document`; empty when nothing is."""
    unknown = set(schema) - KNOWN
    assert not unknown, f"the checker does not know {sorted(unknown)} at {where or '/'}"
    if "$ref" in schema:
        return faults(value, resolve(schema["$ref"], document), document, where)
    found: list[str] = []
    if "anyOf" in schema and all(faults(value, option, document, where) for option in schema["anyOf"]):
        found.append(f"{where}: {value!r} fits none of {len(schema['anyOf'])} forms")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "type" in schema:
        kinds = TYPES[schema["type"]]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return [*found, f"{where}: {value!r} is no {schema['type']}"]
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{where}: {value} is under {schema['minimum']}")
    return [*found, *_parts(value, schema, document, where)]


def _parts(value: Any, schema: dict[str, Any], document: dict[str, Any], where: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        items = schema.get("items", {})
        for at, part in enumerate(value):
            inner = first[at] if at < len(first) else items
            if inner is False:
                found.append(f"{where}/{at}: one too many")
            elif inner:
                found += faults(part, inner, document, f"{where}/{at}")
    if isinstance(value, dict):
        found += [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, part in value.items():
            if name in properties:
                found += faults(part, properties[name], document, f"{where}/{name}")
            elif more is False:
                found.append(f"{where}: {name} is not foreseen")
            elif isinstance(more, dict):
                found += faults(part, more, document, f"{where}/{name}")
    return found


def resolve(reference: str, document: dict[str, Any]) -> dict[str, Any]:
    """What a `#/...` reference points at; KeyError when it points nowhere."""
    at: Any = document
    for step in reference.removeprefix("#/").split("/"):
        at = at[step.replace("~1", "/").replace("~0", "~")]
    return at  # type: ignore[no-any-return]
