"""
JSON Schemas (2020-12) of the records on the wire, from their types. Used by `openapi` alone.

`msgspec.json.schema_components` would do, if it could write a default that is a value of `model.values` (`grace: 30s`); it has a hook for
their types but none for their defaults. So this walks what the public `msgspec.inspect` says of the same types.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from shoal.model.codec import to_plain
from shoal.model.values import ArrayList, CountRange, Duration, Memory, MemoryRange

Schema = dict[str, Any]

TEXT_FORMS: dict[type, Schema] = {
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
"""Values that are written as text, and how."""
_SIMPLE: dict[type[inspect.Type], str] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
}


class Components:
    """Schemas by name, filled as types are asked for; two types of one name are told apart by their module."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of a type; records become references."""
        return self._schema(inspect.type_info(kind))

    def fields_of(self, kind: type[msgspec.Struct]) -> list[tuple[str, bool, Schema]]:
        """(name, required, schema) of each field of a record that is not on the wire itself: query parameters."""
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        return [(field.encode_name, field.required, self._field(field)) for field in info.fields]

    def _schema(self, info: inspect.Type) -> Schema:
        simple = _SIMPLE.get(type(info))
        if simple is not None:
            return {"type": simple}
        if isinstance(info, inspect.StructType | inspect.EnumType):
            return {"$ref": f"#/components/schemas/{self._named(info)}"}
        if isinstance(info, inspect.CustomType):
            return dict(TEXT_FORMS[info.cls])
        if isinstance(info, inspect.LiteralType):
            return {"enum": list(info.values)}
        if isinstance(info, inspect.UnionType):
            return self._union(info)
        return self._container(info)

    def _container(self, info: inspect.Type) -> Schema:
        if isinstance(info, inspect.BytesType):
            return {"type": "string", "contentEncoding": "base64"}
        if isinstance(info, inspect.DictType):
            return {"type": "object", "additionalProperties": self._schema(info.value_type)}
        if isinstance(info, inspect.TupleType):
            items = [self._schema(item) for item in info.item_types]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
        if isinstance(info, inspect.VarTupleType | inspect.ListType | inspect.CollectionType):
            return {"type": "array", "items": self._schema(info.item_type)}
        if isinstance(info, inspect.AnyType):
            return {}
        raise NotImplementedError(f"no schema for {info}")

    def _union(self, info: inspect.UnionType) -> Schema:
        options = [self._schema(option) for option in info.types]
        tagged = [option for option in info.types if isinstance(option, inspect.StructType) and option.tag_field is not None]
        if len(tagged) < 2 or len(tagged) < len(info.types):
            return {"anyOf": options}
        mapping = {str(option.tag): schema["$ref"] for option, schema in zip(tagged, options, strict=True)}
        return {"anyOf": options, "discriminator": {"propertyName": tagged[0].tag_field, "mapping": mapping}}

    def _named(self, info: inspect.StructType | inspect.EnumType) -> str:
        known = self._names.get(info.cls)
        if known is not None:
            return known
        name = info.cls.__name__
        if name in self.schemas:
            name = f"{info.cls.__module__.rpartition('.')[2].capitalize()}{name}"
        self._names[info.cls] = name
        self.schemas[name] = {}  # The place is taken before its fields are looked at: a record may hold itself.
        self.schemas[name] = self._enum(info) if isinstance(info, inspect.EnumType) else self._struct(info)
        return name

    def _enum(self, info: inspect.EnumType) -> Schema:
        return {"title": info.cls.__name__, **_described(info.cls), "enum": [member.value for member in info.cls]}

    def _struct(self, info: inspect.StructType) -> Schema:
        properties = {field.encode_name: self._field(field) for field in info.fields}
        required = [field.encode_name for field in info.fields if field.required]
        if info.tag_field is not None:
            properties = {info.tag_field: {"enum": [info.tag]}, **properties}
            required = [info.tag_field, *required]
        schema: Schema = {"title": info.cls.__name__, **_described(info.cls), "type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if info.forbid_unknown_fields:
            schema["additionalProperties"] = False
        return schema

    def _field(self, field: inspect.Field) -> Schema:
        schema = self._schema(field.type)
        if field.default is msgspec.NODEFAULT or field.default is None:
            return schema
        return {**schema, "default": to_plain(field.default)}


def _described(kind: type) -> Schema:
    """The first paragraph of a type's docstring."""
    text = " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].split())
    return {"description": text} if text else {}
