"""Structured text: resources of a node, labels, pods and their states, nvidia-smi, lspci, device rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shoal.diagnosis.evidence import Kind, Piece, Side
from shoal.diagnosis.facts import Fact
from shoal.diagnosis.lines import Line
from shoal.diagnosis.parsers.making import make
from shoal.diagnosis.signs import Sign

# --- resources -------------------------------------------------------------------------------------------------------------
_RESOURCE: Final = re.compile(
    r"(?P<name>(?:nvidia|amd)\.com/(?:gpu(?:\.shared)?|mig-[\w.+]+))[\"']?\s*(?P<relation>[:=>]|\s)\s*[\"']?(?P<count>\d+)\b"
)
_NO_RESOURCE: Final = re.compile(
    r"\b(?:no|without|lacks?|missing)\b[^;\n]{0,16}(?:nvidia\.com/gpu\b(?!\.)|gpu resource)|nvidia\.com/gpu\W{0,4}\s*(?:is "
    r"|key )?(?:absent|missing|not (?:listed|present|there|shown)|<none>|none|null)"
    r"|^\W*(?:absent|missing|none|<none>|null|empty)\W*$",
    re.IGNORECASE,
)
_PLAIN_COUNT: Final = re.compile(r"^\W*(?P<count>\d+)\W*(?:gpus?)?\W*$", re.IGNORECASE)
_SECTION: Final = re.compile(
    r"^[\"']?(?P<name>capacity|allocatable|allocated resources|requests|conditions|addresses|system info)\b", re.IGNORECASE
)
_LISTS: Final = {Kind.CAPACITY: "capacity", Kind.ALLOCATABLE: "allocatable"}


def resources_in(piece: Piece, lines: list[Line]) -> Iterator[Fact]:
    """GPU resources in capacity and allocatable, from a describe, from YAML or JSON, or as somebody wrote them down."""
    current = _LISTS.get(piece.kind)
    for line in lines:
        if match := _SECTION.match(line.message):
            current = match["name"].lower()
        if current not in ("capacity", "allocatable"):
            continue
        found = False
        for match in _RESOURCE.finditer(line.message):
            found = True
            count = "some" if match["relation"] == ">" else match["count"]
            yield make(Sign.RESOURCE, piece, line, list=current, name=match["name"], count=count)
        if piece.kind in _LISTS and not found:
            if match := _PLAIN_COUNT.match(line.message):
                yield make(Sign.RESOURCE, piece, line, reported=True, list=current, name="nvidia.com/gpu", count=match["count"])
            elif _NO_RESOURCE.search(line.message):
                yield make(Sign.RESOURCE, piece, line, reported=True, list=current, name="nvidia.com/gpu", count="")


# --- labels ----------------------------------------------------------------------------------------------------------------
_LABEL: Final = re.compile(r"(?P<name>(?:nvidia\.com|feature\.node\.kubernetes\.io)/[\w.-]+)[\"']?\s*[=:]\s*[\"']?(?P<value>[\w.+-]+)?")
_NO_LABEL: Final = re.compile(
    r"(?:\bno|without|missing|lacks?|absent:?) (?:the )?(?:label )?[\"'`]?(?P<before>(?:nvidia\.com/"
    r"|feature\.node\.kubernetes\.io/)[\w.*-]+|pci-[\w.]+)"
    r"|(?P<after>(?:nvidia\.com/|feature\.node\.kubernetes\.io/)[\w.-]+|pci-[\w.]+)[\"'`]? (?:label )?(?:is )?(?:absent|missing"
    r"|not (?:set|present|there))",
    re.IGNORECASE,
)
_RESOURCE_LIKE: Final = re.compile(r"nvidia\.com/(?:gpu|gpu\.shared|mig-\d.*)$")
_NONE_AT_ALL: Final = re.compile(r"no (?:nvidia|gpu|nfd|feature(?:\.node)?)\S* labels?(?: at all)?", re.IGNORECASE)


def labels_in(piece: Piece, line: Line) -> Iterator[Fact]:
    """Labels with their values, and those that are said or shown to be missing."""
    text = line.message
    for match in _NO_LABEL.finditer(text):
        name = (match["before"] or match["after"]).lower().rstrip(".")
        name = name if "/" in name else f"feature.node.kubernetes.io/{name}"
        if not _RESOURCE_LIKE.match(name):
            yield make(Sign.LABEL, piece, line, name=name, value="")
    for match in _LABEL.finditer(text):
        before = text[: match.start()].rstrip().rsplit(" ", 1)[-1].lower().lstrip("(")
        if before in ("no", "without", "missing", "lacks") or _RESOURCE_LIKE.match(match["name"]):
            continue
        yield make(Sign.LABEL, piece, line, name=match["name"], value=match["value"] or "")
    if piece.kind is Kind.LABELS and _NONE_AT_ALL.search(text):
        yield make(Sign.LABEL, piece, line, reported=True, name="feature.node.kubernetes.io/pci-10de.present", value="")
        yield make(Sign.LABEL, piece, line, reported=True, name="nvidia.com/gpu.present", value="")


# --- pods ------------------------------------------------------------------------------------------------------------------
_OPERANDS: Final = (
    ("cuda-validator", r"(?:nvidia-)?cuda-?validat(?:or|ion)|cuda validator"),
    ("plugin-validator", r"(?:nvidia-)?(?:device-)?plugin-validat(?:or|ion)"),
    ("validator", r"(?:nvidia-)?operator-validator|\bvalidator\b"),
    ("driver-manager", r"k8s-driver-manager|driver-manager"),
    ("driver", r"nvidia-driver-daemonset|gpu-driver|driver[ -](?:daemonset|container|pod)|driver-installer|\bdrivers?\b"),
    ("toolkit", r"(?:nvidia-)?container-toolkit(?:-daemonset)?|\btoolkit(?!-validation)\b"),
    ("sandbox", r"sandbox-device-plugin|sandbox-validator|vfio-manager|kata-manager|vgpu-(?:device-)?manager|cc-manager"),
    ("mps", r"mps-control-daemon"),
    ("dra", r"(?:nvidia-)?dra-driver\S*|kubelet-plugin|dra (?:plugin|driver)|compute-domain\S*"),
    ("plugin", r"(?:nvidia-|nvdp-)?(?:nvidia-)?device[- ]plugin(?:-daemonset)?|hami-device-plugin|\bplugin\b"),
    ("gfd", r"gpu-feature-discovery|\bgfd\b"),
    ("monitoring", r"(?:nvidia-)?dcgm(?:-exporter)?|node-status-exporter"),
    ("mig-manager", r"(?:nvidia-)?mig-manager"),
    ("nfd", r"(?:\w+-)?node-feature-discovery(?:-worker|-master|-gc)?|nfd(?:-worker|-master)?\b"),
    ("operator", r"\bgpu-operator\b(?!-)"),
)
_STATES: Final = (
    ("image", r"ImagePullBackOff|ErrImagePull|Init:ErrImagePull|image pull (?:error|fail\w*)|InvalidImageName"),
    (
        "crash",
        (
            r"(?:Init:)?CrashLoopBackOff|(?:Init:)?\bError\b|RunContainerError|CreateContainer\w*Error|Init:\w*Error|StartError"
            r"|\bpanic\w*|crash\w*|OOMKilled|\bfail(?:s|ed|ing)?\b|exits?\b|restarts? (?:loop|often)"
        ),
    ),
    ("init", r"Init:\d+/\d+|PodInitializing|stuck in init\w*|init stuck|\bInit\b"),
    (
        "pending",
        (
            r"\bPending\b|ContainerCreating|\bwaiting\b|stuck|never (?:completes|ready|starts|becomes ready)|not (?:ready|running|up)"
            r"|Terminating|Unknown"
        ),
    ),
    ("not-ready", r"\b0/[1-9]\d*\s+Running|1/2\s+Running|Running but\b"),
    ("ok", r"\bRunning\b|\bCompleted\b|\bok\b|\bReady\b|\bhealthy\b|\bfine\b|\bgood\b|\bup\b|\bsucceeded\b"),
)
_TOKEN: Final = re.compile(
    "|".join(
        [f"(?P<o{n}>{words})" for n, (_, words) in enumerate(_OPERANDS)] + [f"(?P<s{n}>{words})" for n, (_, words) in enumerate(_STATES)]
    ),
    re.IGNORECASE,
)
_INIT: Final = re.compile(
    r"\b(?P<name>driver-validation|toolkit-validation|cuda-validation|plugin-validation|k8s-driver-manager|mofed-validation"
    r"|nvidia-fs-validation)\b",
    re.IGNORECASE,
)
_FULL_NAME: Final = re.compile(
    r"nvidia-(?:driver-daemonset|container-toolkit|operator-validator|cuda-validator|device-plugin|dcgm|mig-manager)"
    r"|gpu-feature-discovery|node-feature-discovery|k8s-driver-manager",
    re.IGNORECASE,
)
_POD_KINDS: Final = frozenset({Kind.PODS, Kind.OPERATOR_LOG, Kind.NOTE, Kind.POD_EVENTS, Kind.NODE, Kind.DRIVER_LOG})


def pods_in(piece: Piece, line: Line) -> Iterator[Fact]:
    """Operands with their states, from `kubectl get pods` or from a sentence such as `driver, toolkit ok; validator Error`."""
    if piece.kind not in _POD_KINDS or (piece.kind is not Kind.PODS and not _FULL_NAME.search(line.message)):
        return
    if re.search(r"\bno\b.{0,60}\bpods?\b", line.message, re.IGNORECASE):
        return  # a sentence about pods that are not there: the message tables read it
    for match in _INIT.finditer(line.message):
        yield make(Sign.INIT, piece, line, name=match["name"].lower())
    waiting: list[str] = []
    for match in _TOKEN.finditer(line.message):
        group = match.lastgroup or ""
        if group.startswith("o"):
            waiting.append(_OPERANDS[int(group[1:])][0])
            continue
        for operand in dict.fromkeys(waiting):
            yield make(Sign.POD, piece, line, operand=operand, state=_STATES[int(group[1:])][0])
            if operand == "driver" and match[0].lower().startswith("init:"):  # its only init container
                yield make(Sign.INIT, piece, line, name="k8s-driver-manager")
        waiting = []


# --- nvidia-smi ------------------------------------------------------------------------------------------------------------
_GPU_LINE: Final = re.compile(r"^GPU \d+: |^\|\s+\d+\s+(?:NVIDIA|Tesla|GeForce|Quadro|A\d|H\d|GRID)\b")
_TABLE: Final = re.compile(r"NVIDIA-SMI \d+\.|Attached GPUs\s*:\s*\d+|^GPU [\d.]+ listed|listed normally|^GPU \d+(?:\.\.\d+)? ")
_ATTACHED: Final = re.compile(r"Attached GPUs\s*:\s*(?P<count>\d+)")
_PCI_LINE: Final = re.compile(
    r"(?:3D controller|VGA compatible controller|Display controller|\[030[02]\])\b.*(?:NVIDIA|10de)|^\S+ 030[02]: 10de:", re.IGNORECASE
)
_ERR: Final = re.compile(r"(?:\|.*|:\s*)\bERR!")
_FIELD: Final = re.compile(r"^(?P<name>[A-Za-z][\w .()/-]*?)\s*:\s*(?P<value>.+)$")
_SMI_SIDES: Final = {Kind.SMI: Side.HOST, Kind.SMI_HOST: Side.HOST, Kind.SMI_CONTAINER: Side.CONTAINER}


def smi_in(piece: Piece, lines: list[Line]) -> Iterator[Fact]:
    """A listing, a table or `nvidia-smi -q`: that it worked, how many GPUs, and the fields that tell a state."""
    side = _SMI_SIDES.get(piece.kind)
    if side is None:
        return
    gpus = [line for line in lines if _GPU_LINE.match(line.text)]
    good = next((line for line in [*gpus, *lines] if _GPU_LINE.match(line.text) or _TABLE.search(line.text)), None)
    if good is not None:
        inside = piece.kind is Kind.SMI and any(re.search(r"\b(?:container|pod)\b", line.text, re.IGNORECASE) for line in lines)
        yield make(Sign.SMI_GOOD, piece, good, side=Side.CONTAINER if inside else side)
    attached = next(((line, match["count"]) for line in lines if (match := _ATTACHED.search(line.text))), None)
    if attached is not None:
        yield make(Sign.COUNT, piece, attached[0], side=side, by="smi", count=attached[1])
    elif gpus and len(gpus) > 1:
        yield make(Sign.COUNT, piece, gpus[-1], side=side, by="smi", count=str(len({line.text.split(":")[0] for line in gpus})))
    for line in lines:
        if _ERR.search(line.text):
            yield make(Sign.SMI_ERR, piece, line, side=side)
    yield from _fields(piece, lines, side)


_FIELDS: Final = (
    ("remapped rows", "pending", r"yes", Sign.REMAP_PENDING),
    ("remapped rows", "remapping failure occurred", r"yes", Sign.REMAP_FAILED),
    ("retired pages", "pending page blacklist", r"yes", Sign.REMAP_PENDING),
    ("fabric", "state", r"in progress|not started", Sign.FABRIC_NOT_READY),
    ("fabric", "status", r"(?!success|n/a).+", Sign.FABRIC_NOT_READY),
    ("mig mode", "current", r"enabled", Sign.MIG_ON),
)


def _fields(piece: Piece, lines: list[Line], side: Side) -> Iterator[Fact]:
    """Fields of `nvidia-smi -q`, whose meaning hangs on the section above them."""
    section, current = "", ""
    for line in lines:
        match = _FIELD.match(line.text)
        if match is None:
            section = line.text.strip().lower()
            continue
        name, value = match["name"].strip().lower(), match["value"].strip()
        for wanted_section, wanted, pattern, sign in _FIELDS:
            if section == wanted_section and name == wanted and re.fullmatch(pattern, value, re.IGNORECASE):
                yield make(sign, piece, line, side=side)
        if section == "mig mode" and name == "current":
            current = value
        elif section == "mig mode" and name == "pending" and current and value != current:
            yield make(Sign.MIG_PENDING, piece, line, side=side)


def pci_in(piece: Piece, lines: list[Line]) -> Iterator[Fact]:
    """GPUs in a listing of the PCI bus."""
    gpus = [line for line in lines if _PCI_LINE.search(line.text)]
    if gpus:
        yield make(Sign.COUNT, piece, gpus[-1], side=Side.HOST, by="pci", count=str(len(gpus)))


# --- device rules ----------------------------------------------------------------------------------------------------------
_RULE: Final = re.compile(r"\bc 195:(?:\d+|\*) (?P<mode>[rwm]+)\b")


def rules_in(piece: Piece, lines: list[Line]) -> Iterator[Fact]:
    """Device rules of a container's cgroup for the NVIDIA devices (major 195)."""
    if piece.kind is not Kind.CGROUP:
        return
    rules = [(line, match["mode"]) for line in lines for match in _RULE.finditer(line.text)]
    if any("r" in mode and "w" in mode for _, mode in rules):
        yield make(Sign.RULES_BEFORE, piece, rules[0][0])
    elif rules or (lines and all(re.match(r"[abc] [\d*]+:[\d*]+ [rwm]+$", line.text) for line in lines)):
        yield make(Sign.RULES_AFTER, piece, rules[0][0] if rules else lines[0])
