"""
Job files: YAML that people write, to `model.JobSpec`, and back.

A file holds one job or several, separated by `---`. Reading is strict and tells all faults at once, each with pointer, line and
column. What a value may be beyond its type (limits, combinations) is `lifecycle.spec_rules`, which the server answers with pointers;
`JobFile.locate` gives those their lines. A file cannot make jobs wait for each other in a circle: `depends_on` takes numbers of
jobs that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.base import limits
from shoal.base.errors import Fault, Invalid
from shoal.formats import yaml
from shoal.formats.shape import shape_faults
from shoal.formats.shorthand import expand as expand
from shoal.model.codec import convert, to_plain
from shoal.model.job import JobSpec

_FIRST_KEYS = ("name", "queue", "nodes", "tasks_per_node", "gpus", "cpus", "memory", "pool", "time", "setup", "run")
"""What a reader looks for comes first; the rest follows in the order of the record."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """One job of a file, with what is needed to say where in the file a fault is."""

    spec: JobSpec
    source: str
    places: dict[str, yaml.Place] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """Pointers that the command line set, with the text that did."""

    def locate(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """`faults` with lines and columns: of the place itself, or of the nearest thing around it that stands in the file."""
        return tuple(_located(fault, self.places, self.settings) for fault in faults)


def read_job(text: bytes | str, source: str) -> tuple[JobSpec, ...]:
    """The jobs of a file; `source` names it in messages. Raises Invalid, Malformed or TooLarge as `read_jobs`."""
    return tuple(job.spec for job in read_jobs(text, source))


def read_jobs(text: bytes | str, source: str, settings: Sequence[str] = ()) -> tuple[JobFile, ...]:
    """
    The jobs of a file with their places. `settings` are `key.path=value` texts laid over every job of the file.

    Raises: Invalid with all faults of all jobs; Malformed for what is no text; TooLarge over limits.JOB_FILE_BYTES_MAX.
    """
    documents = [document for document in yaml.parse(text, source) if document.value is not None]
    if not documents:
        raise Invalid(f"{source} holds no job", (Fault("holds no job; the smallest one is: run: echo hello", ""),))
    if len(documents) > limits.BATCH_JOBS_MAX:
        raise Invalid(f"{source} holds {len(documents):,} jobs; a file may hold {limits.BATCH_JOBS_MAX:,}. Use an array, or several files")
    faults: list[Fault] = []
    jobs: list[JobFile] = []
    for document in documents:
        raw, laid = _lay_over(expand(document.value, document.written), settings)
        raw = expand(raw)
        found = shape_faults(raw, JobSpec)
        faults.extend(_located(fault, document.places, laid) for fault in found)
        if not found:
            jobs.append(JobFile(convert(raw, JobSpec), source, document.places, laid))
    if faults:
        raise Invalid(f"{source}: {len(faults)} fault{'s' if len(faults) > 1 else ''}", tuple(faults))
    return tuple(jobs)


def decode_spec(raw: Any) -> JobSpec:
    """The spec that a client sent as plain JSON values, short forms and all. Raises Invalid with every fault."""
    opened = expand(raw)
    faults = shape_faults(opened, JobSpec)
    if faults:
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise Invalid(f"{first.pointer or '/'}: {first.message}{more}", faults)
    return convert(opened, JobSpec)


def write_job(spec: JobSpec) -> str:
    """YAML text that `read_job` reads back as an equal spec. Defaults are left out."""
    plain = to_plain(spec)
    first = {key: plain[key] for key in _FIRST_KEYS if key in plain}
    return yaml.dump({**first, **plain})


def _located(fault: Fault, places: dict[str, yaml.Place], settings: dict[str, str]) -> Fault:
    if fault.line is not None:
        return fault
    at = fault.pointer
    while at and at not in places and at not in settings:
        at = at.rpartition("/")[0]
    if at in settings:
        return replace(fault, message=f"{fault.message} (from --set {settings[at]})")
    place = places.get(at)
    if place is None:
        return fault
    of_key = fault.message.startswith("unknown key")
    line, column = (place.key_line, place.key_column) if of_key else (place.line, place.column)
    return replace(fault, line=line, column=column)


def _lay_over(raw: Any, settings: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """`raw` with each `key.path=value` laid over it, and the pointers that were set."""
    laid: dict[str, str] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise Invalid(f"--set {setting}: write key=value, for example --set gpus.count=4")
        steps = path.split(".")
        raw = _with(raw, steps, _setting_value(steps, text))
        pointer = ""
        for part in steps:
            pointer = yaml.step(pointer, part)
        laid[pointer] = setting
    return raw, laid


def _setting_value(steps: list[str], text: str) -> Any:
    """As after `key: ` in a file, but always text where only text can be."""
    return text if steps[0] in ("env", "labels") and len(steps) > 1 else yaml.parse_value(text)


def _with(raw: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    if isinstance(raw, list):
        if not first.isdecimal() or int(first) >= len(raw):
            raise Invalid(f"--set: {first!r} is not a place in a list of {len(raw)}")
        return [_with(item, rest, value) if at == int(first) else item for at, item in enumerate(raw)]
    within = raw if isinstance(raw, dict) else {}
    return {**within, first: _with(within.get(first), rest, value)}
