"""
Policies by their text: `name` or `name:key=value,key=value`, for command lines and scenario files.

The keys are the fields of `scheduling.policy.Policy`, and `order` (strict or best-effort), which in life is a queue's own and in a replay
goes to the queues of a trace that says nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from shoal.base.errors import Invalid
from shoal.base.words import did_you_mean
from shoal.scheduling.packing.table import read_table
from shoal.scheduling.policy import Policy


class NamedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as a comparison names it."""

    name: str
    policy: Policy = Policy()
    order: Literal["strict", "best-effort"] = "best-effort"


def policy_of(settings: Mapping[str, Any]) -> Policy:
    """The default policy with these fields set. Raises Invalid for a field that there is not, or a value that it cannot have."""
    known = Policy.__struct_fields__
    for name in settings:
        if name not in known:
            raise Invalid(f"a policy has no {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}")
    try:
        return msgspec.convert(dict(settings), Policy, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"policy: {error}") from error


def changed_policy(policy: Policy, text: str) -> Policy:
    """A policy with the fields that `key=value,key=value` sets. Raises Invalid."""
    settings = _settings(text, f"policy {text!r}: write key=value,key=value, for example reserve=conservative")
    return policy_of({name: getattr(policy, name) for name in Policy.__struct_fields__} | settings)


def _settings(text: str, advice: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise Invalid(advice)
        settings[key.strip()] = value.strip()
    return settings


def named_policy(text: str, bytes_of: Callable[[str], bytes] | None = None) -> NamedPolicy:
    """The policy that `fcfs:order=strict` names; `bytes_of` reads the file of a `packing_table`. Raises Invalid, Malformed."""
    name, _, rest = text.partition(":")
    settings = _settings(rest, f"policy {text!r}: write name:key=value,key=value, for example fcfs:order=strict")
    order = settings.pop("order", "best-effort")
    if order not in ("strict", "best-effort"):
        raise Invalid(f"policy {text!r}: order is strict or best-effort, got {order!r}")
    file = settings.pop("packing_table", None) if bytes_of is not None else None
    tables = {} if file is None or bytes_of is None else {"packing_table": read_table(bytes_of(file))[1]}
    return NamedPolicy(name=name or "default", policy=policy_of({**settings, **tables}), order=order)  # type: ignore[arg-type]
