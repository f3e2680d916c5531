"""
Every rule of a job file beyond its types: limits, combinations, forms. `check_spec` gives all broken ones, each with its place.

Called by `control` before anything is written. Types, unknown keys and units are told earlier, by `formats.jobfile` and `model.codec`.
A gang larger than today's fleet is no fault: it is taken and waits. What this version cannot do is a fault that says so, never a wish
that is quietly dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shoal.base import limits
from shoal.base.errors import Fault
from shoal.base.ids import is_uuid
from shoal.base.units import format_duration_ms
from shoal.formats.moment import resolve_moment
from shoal.lifecycle.gang import SIGNALS
from shoal.lifecycle.names import name_faults, shortened
from shoal.lifecycle.resource_rules import between, check_resources
from shoal.lifecycle.topology_rules import check_topology
from shoal.model.job import JobSpec, Mount
from shoal.model.values import Duration

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_UNIX_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}\$?")
_JOB_REF = re.compile(r"[1-9][0-9]{0,17}(_[0-9]{1,9})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_YEAR_MS = limits.TIME_LIMIT_MS_MAX


def check_spec(spec: JobSpec) -> tuple[Fault, ...]:
    """All broken rules; empty when the spec is good. Pointers are into the spec in its plain form."""
    return (
        *_names(spec),
        *_commands(spec),
        *check_resources(spec),
        *_groups(spec),
        *_times(spec),
        *_variables(spec),
        *_files(spec),
        *_order(spec),
        *_ends(spec),
        *_elastic(spec),
        *_not_yet(spec),
        *_topology(spec),
    )


def _names(spec: JobSpec) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    if not spec.name.isprintable() or spec.name != spec.name.strip() or not 0 < len(spec.name) <= limits.NAME_CHARS_MAX:
        form = f"1 to {limits.NAME_CHARS_MAX} printable characters without blanks at its ends"
        faults.append(Fault(f"name {shortened(spec.name)} has {len(spec.name)} characters; use {form}", "/name"))
    if spec.queue is not None:
        faults += name_faults("queue", spec.queue, "/queue")
    if spec.user is not None and not _UNIX_USER.fullmatch(spec.user):
        faults.append(Fault(f"user {shortened(spec.user)} is no Unix user name", "/user"))
    faults += between("the count of labels", len(spec.labels), 0, limits.LABELS_PER_JOB_MAX, "/labels")
    for key, value in spec.labels.items():
        faults += name_faults("label", key, f"/labels/{_step(key)}")
        if len(value) > limits.NAME_CHARS_MAX or not value.isprintable():
            form = f"at most {limits.NAME_CHARS_MAX} printable characters"
            faults.append(Fault(f"label {shortened(key)} has {len(value)} characters; use {form}", f"/labels/{_step(key)}"))
    return tuple(faults)


def _step(key: str) -> str:
    """A key as a step of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


# --- what runs ------------------------------------------------------------------------------------------------------------
def _commands(spec: JobSpec) -> tuple[Fault, ...]:
    faults = list(_command(spec.run, "/run"))
    lacking = [i for i, group in enumerate(spec.groups) if group.run is None] if spec.groups else [-1]
    if spec.run is None and lacking:
        place = "/run" if lacking == [-1] else f"/groups/{lacking[0]}/run"
        faults.append(Fault("run is missing: say what to run, for example run: python train.py", place))
    for i, group in enumerate(spec.groups):
        faults += _command(group.run, f"/groups/{i}/run")
    return (*faults, *_command(spec.setup, "/setup"))


def _command(run: str | tuple[str, ...] | None, pointer: str) -> tuple[Fault, ...]:
    if run is None:
        return ()
    what = pointer.rpartition("/")[2]
    if not run or (isinstance(run, str) and not run.strip()) or (isinstance(run, tuple) and not run[0].strip()):
        return (Fault(f"{what} is empty: give a script, or a list with a command and its arguments", pointer),)
    words = (run,) if isinstance(run, str) else run
    if any("\0" in word for word in words):
        return (Fault(f"{what} has a NUL character, which no program can be given", pointer),)
    if isinstance(run, str):
        return ()
    longest = max(len(word.encode(errors="surrogatepass")) for word in run)
    advice = "put long text into a file of the working directory"
    return between(f"an argument's length in bytes in {what}", longest, 0, limits.ENV_VALUE_BYTES_MAX, pointer, advice)


def _groups(spec: JobSpec) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    seen: set[str] = set()
    for i, group in enumerate(spec.groups):
        faults += name_faults("group", group.name, f"/groups/{i}/name")
        if group.name in seen:
            faults.append(Fault(f"group {shortened(group.name)} is there twice; each needs a name of its own", f"/groups/{i}/name"))
        seen.add(group.name)
    if spec.interactive and spec.array is not None:
        faults.append(Fault("interactive and array exclude each other: a terminal has one job", "/array"))
    if spec.interactive and spec.retry.limit:
        faults.append(Fault("interactive and retry exclude each other: the terminal's user is gone after the first try", "/retry/limit"))
    return tuple(faults)


def _variables(spec: JobSpec) -> tuple[Fault, ...]:
    faults = list(_env(spec.env, "/env"))
    for i, group in enumerate(spec.groups):
        faults += _env(group.env, f"/groups/{i}/env")
    faults += between("the count of secrets", len(spec.secrets), 0, limits.SECRETS_PER_JOB_MAX, "/secrets")
    for file, secret in spec.secrets.items():
        if not _FILE_NAME.fullmatch(file) or len(file) > limits.NAME_CHARS_MAX:
            faults.append(Fault(f"secret file {shortened(file)} is no plain file name, for example token", f"/secrets/{_step(file)}"))
        faults += name_faults("secret", secret, f"/secrets/{_step(file)}")
    return tuple(faults)


def _env(env: Mapping[str, str], place: str) -> tuple[Fault, ...]:
    faults = list(between("the count of variables in env", len(env), 0, limits.ENV_VARS_MAX, place, "put them into a file"))
    for name, value in env.items():
        pointer = f"{place}/{_step(name)}"
        if not _ENV_NAME.fullmatch(name) or len(name) > limits.NAME_CHARS_MAX:
            faults.append(Fault(f"{shortened(name)} is no name of a variable; use letters, digits and _, no digit first", pointer))
        if "\0" in value:
            faults.append(Fault(f"the value of {shortened(name)} has a NUL character, which no program can be given", pointer))
        size = len(value.encode(errors="surrogatepass"))
        faults += between(f"the length of {shortened(name)} in bytes", size, 0, limits.ENV_VALUE_BYTES_MAX, pointer, "put it into a file")
    return tuple(faults)


def _files(spec: JobSpec) -> tuple[Fault, ...]:
    faults = list(between("the count of mounts", len(spec.mounts), 0, limits.MOUNTS_PER_JOB_MAX, "/mounts"))
    seen: set[str] = set()
    for i, mount in enumerate(spec.mounts):
        faults += _mount(mount, f"/mounts/{i}")
        target = mount.target.rstrip("/")
        if target in seen:
            faults.append(Fault(f"two mounts have the target {shortened(mount.target)}; each needs its own", f"/mounts/{i}/target"))
        seen.add(target)
    blob = spec.workdir.blob if spec.workdir else None
    if blob is not None and not _SHA256.fullmatch(blob):
        faults.append(Fault(f"workdir.blob {shortened(blob)} is no SHA-256 in 64 hexadecimal digits", "/workdir/blob"))
    return tuple(faults)


def _mount(mount: Mount, place: str) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for name in ("source", "target"):
        path: str = getattr(mount, name)
        steps = path.split("/")
        if not path.startswith("/") or ".." in steps or "." in steps or "\0" in path:
            form = "an absolute path without '.' and '..', for example /data"
            faults.append(Fault(f"mount {name} {shortened(path)} must be {form}", f"{place}/{name}"))
    if not mount.target.strip("/"):
        faults.append(Fault("a mount cannot take the place of the root directory", f"{place}/target"))
    return tuple(faults)


# --- when -----------------------------------------------------------------------------------------------------------------
def _times(spec: JobSpec) -> tuple[Fault, ...]:
    checkpoint = spec.checkpoint
    faults = [
        *_duration("time", spec.time, 1, _YEAR_MS, "/time"),
        *_duration("retry.backoff", spec.retry.backoff, 0, _YEAR_MS, "/retry/backoff"),
        *_duration("stop.grace", spec.stop.grace, 0, limits.GRACE_MS_MAX, "/stop/grace"),
        *_duration("on_disconnect.stop_after", spec.on_disconnect.stop_after, 1, _YEAR_MS, "/on_disconnect/stop_after"),
        *_duration("hold_on_failure", spec.hold_on_failure, 1, limits.HOLD_MS_MAX, "/hold_on_failure"),
        *_duration("tolerance", spec.tolerance, 0, _YEAR_MS, "/tolerance"),
        *_duration("checkpoint.every", checkpoint.every if checkpoint else None, 1, _YEAR_MS, "/checkpoint/every"),
        *_duration("checkpoint.takes", checkpoint.takes if checkpoint else None, 0, _YEAR_MS, "/checkpoint/takes"),
    ]
    if spec.begin is not None:
        try:
            resolve_moment(spec.begin, 0)
        except ValueError as error:
            faults.append(Fault(str(error), "/begin"))
    return tuple(faults)


def _duration(what: str, value: Duration | None, low_ms: int, high_ms: int, pointer: str) -> tuple[Fault, ...]:
    if value is None or low_ms <= value.ms <= high_ms:
        return ()
    bound = f"at least {format_duration_ms(low_ms)}" if value.ms < low_ms else f"at most {format_duration_ms(high_ms)}"
    return (Fault(f"{what} is {value.plain()}; {bound} is possible", pointer),)


def _order(spec: JobSpec) -> tuple[Fault, ...]:
    faults = list(between("priority", spec.priority, -limits.PRIORITY_MAX, limits.PRIORITY_MAX, "/priority"))
    count = len(spec.depends_on)
    faults += between(
        "the count of dependencies", count, 0, limits.DEPENDENCIES_PER_JOB_MAX, "/depends_on", "depend on an array in place of its parts"
    )
    for i, need in enumerate(spec.depends_on[: limits.DEPENDENCIES_PER_JOB_MAX]):
        if not _JOB_REF.fullmatch(need.job) and not is_uuid(need.job):
            message = f"depends_on {shortened(need.job)} is no job; give its number (12), an array's element (12_3) or its id"
            faults.append(Fault(message, f"/depends_on/{i}/job"))
    return tuple(faults)


# --- how it ends ----------------------------------------------------------------------------------------------------------
def _ends(spec: JobSpec) -> tuple[Fault, ...]:
    faults = list(between("retry.limit", spec.retry.limit, 0, limits.RETRIES_MAX, "/retry/limit"))
    for i, code in enumerate(spec.retry.exit_codes):
        faults += between(
            "an exit code to retry on", code, 1, 255, f"/retry/exit_codes/{i}", "0 is success; a signal shows as 128 + its number"
        )
    faults += _signal("stop.signal", spec.stop.signal, "/stop/signal")
    if spec.checkpoint is not None and spec.checkpoint.signal is not None:
        faults += _signal("checkpoint.signal", spec.checkpoint.signal, "/checkpoint/signal")
    return tuple(faults)


def _elastic(spec: JobSpec) -> tuple[Fault, ...]:
    """What may grow and shrink is one group of alike members, in a range."""
    if spec.elastic is None:
        return ()
    faults: list[Fault] = []
    low, high = (spec.nodes.low, spec.nodes.high) if spec.nodes is not None else (1, 1)
    if low == high:
        faults.append(Fault(f"elastic needs a range of nodes and there are {low}; for example nodes: 2..4", "/nodes"))
    others = (("groups", spec.groups), ("any_of", spec.any_of), ("ordered", spec.ordered))
    for name, given in others:
        if given:
            faults.append(Fault(f"elastic and {name} exclude each other: an elastic gang has members of one kind", f"/{name}"))
    if spec.topology is not None and (spec.topology.mesh or spec.topology.slice is not None):
        faults.append(Fault("elastic excludes topology.mesh and topology.slice: these have one size", "/topology"))
    if spec.gpus is not None and (spec.gpus.mig is not None or spec.gpus.share is not None or spec.gpus.share_memory is not None):
        faults.append(Fault("elastic takes whole GPUs: leave out mig, share and share_memory", "/gpus"))
    if spec.interactive:
        faults.append(Fault("interactive and elastic exclude each other: the terminal belongs to one task of one size", "/interactive"))
    if spec.elastic.signal is not None:
        faults += _signal("elastic.signal", spec.elastic.signal, "/elastic/signal")
        if spec.elastic.how == "restart":
            faults.append(Fault("elastic.signal needs elastic.how: in_place; by restart the tasks get stop.signal", "/elastic/signal"))
    return tuple(faults)


def _signal(what: str, name: str, pointer: str) -> tuple[Fault, ...]:
    known = tuple(SIGNALS)
    if name.removeprefix("SIG") in known:
        return ()
    return (
        Fault(f"{what} {shortened(name)} is no signal that a job can be told with; use one of {', '.join(known)}", pointer, allowed=known),
    )


def _topology(spec: JobSpec) -> tuple[Fault, ...]:
    """Counts that are no counts have been told by then, and nothing is multiplied with them."""
    return () if check_resources(spec) else check_topology(spec)


def _not_yet(spec: JobSpec) -> tuple[Fault, ...]:
    """Parts of the form that this version does not carry out."""
    wishes = (
        (spec.isolation != "process", f"isolation: {spec.isolation}", "/isolation", "leave it out to run as a plain process"),
        (spec.image is not None, "image", "/image", "leave it out and run what is installed on the nodes"),
    )
    return tuple(Fault(f"{what} is not available in this version; {advice}", pointer) for is_set, what, pointer, advice in wishes if is_set)
