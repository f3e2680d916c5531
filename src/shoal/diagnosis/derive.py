"""
What follows from several facts: versions that differ, resources that are missing, Xids by where they come from, states behind labels.

Each function reads facts and gives facts; a derived fact stands where the fact stood that decided. Rules then need no arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from shoal.diagnosis.evidence import Kind, Side
from shoal.diagnosis.facts import Fact, Facts
from shoal.diagnosis.signs import Sign
from shoal.facts.cuda import floor_of, version_of
from shoal.facts.xid import XIDS, Origin

_PCI_LABELS: Final = tuple(f"feature.node.kubernetes.io/{name}.present" for name in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))


def derive(facts: Facts) -> Facts:
    """`facts` with all that follows from them."""
    for step in (_versions, _resources, _counts, _xids, _labels, _compat, _kubelet, _sides):
        facts.extend(list(step(facts)))
    return facts


def _from(fact: Fact, sign: Sign, **values: str) -> Fact:
    return msgspec.structs.replace(fact, sign=sign, values={**fact.values, **values})


def _versions(facts: Facts) -> Iterator[Fact]:
    client = facts.first(Sign.API_MISMATCH)
    module = facts.first(Sign.MODULE_VERSION)
    upgraded = facts.first(Sign.PACKAGE_UPGRADED)
    if client is not None:
        said = {"client": client.values.get("client", "?"), "module": module.values.get("version", "?") if module else "?"}
        if said["client"] != said["module"]:
            yield _from(client, Sign.VERSIONS_DIFFER, **said)
    elif upgraded is not None and facts.has(Sign.VERSION_MISMATCH):
        yield _from(upgraded, Sign.VERSIONS_DIFFER, client=upgraded.values.get("new", "?"), module=upgraded.values.get("old", "?"))


def _resources(facts: Facts) -> Iterator[Fact]:
    capacity, allocatable = _listed(facts, "capacity"), _listed(facts, "allocatable")
    names = sorted(capacity.keys() | allocatable.keys())
    whole = [name for name in names if ".com/gpu" in name]
    mig = [fact for name, fact in {**capacity, **allocatable}.items() if "/mig-" in name and fact.values["count"] not in ("", "0")]
    for name in whole:
        cap, alloc = capacity.get(name), allocatable.get(name)
        deciding = alloc or cap
        assert deciding is not None
        total, usable = (fact.values["count"] if fact else None for fact in (cap, alloc))
        if mig and usable in ("0", "") and not (total or "").isdigit():
            yield _from(mig[0], Sign.MIG_RESOURCES_ONLY)
        yield from _matrix(deciding, total, usable, bool(mig))


def _matrix(deciding: Fact, total: str | None, usable: str | None, mig: bool) -> Iterator[Fact]:
    """The capacity matrix: which of its cells the node is in."""
    if mig and usable in ("0", ""):
        yield _from(deciding, Sign.MIG_RESOURCES_ONLY)
    elif usable == "" or (usable is None and total == ""):
        yield _from(deciding, Sign.RESOURCE_MISSING)
    elif usable == "0" and total not in (None, "0", ""):
        yield _from(deciding, Sign.NONE_ALLOCATABLE, capacity=total or "?")
    elif usable == "0" or (usable is None and total == "0"):
        yield _from(deciding, Sign.RESOURCE_ZERO)
    elif usable is not None and usable.isdigit() and total is not None and total.isdigit() and int(usable) < int(total):
        yield _from(deciding, Sign.SOME_UNALLOCATABLE, capacity=total, bad=str(int(total) - int(usable)))
    elif usable is not None and (usable == total or usable == "some" or usable.isdigit()):
        yield _from(deciding, Sign.RESOURCE_ENOUGH)


def _listed(facts: Facts, which: str) -> dict[str, Fact]:
    return {fact.values["name"]: fact for fact in reversed(facts.of(Sign.RESOURCE, list=which))}


def _counts(facts: Facts) -> Iterator[Fact]:
    by_bus = [fact for fact in facts.of(Sign.COUNT, by="pci") if fact.number("count") is not None]
    by_smi = [fact for fact in facts.of(Sign.COUNT, by="smi") if fact.side is not Side.CONTAINER]
    for seen in by_smi:
        most = max((fact.number("count") or 0 for fact in by_bus), default=0)
        count = seen.number("count")
        if count is not None and count < most:
            yield _from(seen, Sign.GPU_MISSING, seen=str(count), wanted=str(most))
    gres = facts.first(Sign.GRES_LOWER)
    if gres is not None and (gres.number("found") or 0) > 0 and any(fact.number("count") == gres.number("found") for fact in by_smi):
        yield _from(gres, Sign.GPU_MISSING, seen=gres.values["found"], wanted=gres.values.get("asked", "?"))


_XID_SIGNS: Final[dict[Origin, Sign]] = {
    Origin.HARDWARE: Sign.XID_HARDWARE,
    Origin.DRIVER: Sign.XID_DRIVER,
    Origin.APPLICATION: Sign.XID_APPLICATION,
    Origin.CONTAINED: Sign.XID_CONTAINED,
    Origin.LINK: Sign.XID_LINK,
    Origin.PENDING: Sign.XID_PENDING,
}


def _xids(facts: Facts) -> Iterator[Fact]:
    """Each Xid under its origin. 45 follows another code and stands for itself only where it is alone."""
    known = [(fact, XIDS.get(fact.number("code") or 0)) for fact in facts.of(Sign.XID)]
    roots = False
    for fact, row in known:
        if row is None:
            yield _from(fact, Sign.XID_UNKNOWN)
        elif row.origin in _XID_SIGNS:
            roots = True
            yield _from(fact, _XID_SIGNS[row.origin], meaning=row.meaning, note=row.note)
        elif row.code == 154 and (to := fact.values.get("to", "").lower()) not in ("", "none"):
            yield _from(fact, Sign.RESET_REQUIRED, action=to)
    cleanup = next((fact for fact, row in known if row is not None and row.origin is Origin.CONSEQUENCE), None)
    if cleanup is not None and not roots:
        yield _from(cleanup, Sign.XID_ONLY_CLEANUP)


def _labels(facts: Facts) -> Iterator[Fact]:
    labels = {fact.values["name"]: fact for fact in facts.of(Sign.LABEL)}
    yield from _upgrade(labels)
    yield from _mig_labels(labels)
    for name, fact in labels.items():
        value = fact.values["value"].lower()
        if name.startswith("nvidia.com/gpu.deploy."):
            if value in ("false", "no"):
                yield _from(fact, Sign.OPERANDS_OFF)
            elif value.startswith("paused-for-mig"):
                yield _from(fact, Sign.PAUSED_FOR_MIG)
            elif value.startswith("paused-for-driver"):
                yield _from(fact, Sign.PAUSED_FOR_UPGRADE)
        elif name == "nvidia.com/gpu.workload.config" and value.startswith("vm-"):
            yield _from(fact, Sign.PASSTHROUGH)
        elif name == "nvidia.com/gpu.present" and value in ("", "false"):
            yield _from(fact, Sign.GPU_LABEL_MISSING)
    pci = [labels[name] for name in _PCI_LABELS if name in labels]
    missing = [fact for fact in facts.of(Sign.LABEL, value="") if "/pci-" in fact.values["name"]]
    if missing and not any(fact.values["name"] == _PCI_LABELS[0] and fact.values["value"] == "true" for fact in pci):
        yield _from(missing[0], Sign.PCI_LABEL_MISSING)
    other = [
        fact
        for fact in labels.values()
        if "/pci-" in fact.values["name"] and "10de" in fact.values["name"] and fact.values["value"] == "true"
    ]
    if other and not any("/pci-10de" in fact.values["name"] for fact in other):
        yield _from(other[0], Sign.OTHER_PCI_LABEL)


def _upgrade(labels: dict[str, Fact]) -> Iterator[Fact]:
    fact = labels.get("nvidia.com/gpu-driver-upgrade-state")
    if fact is None or fact.values["value"] in ("", "upgrade-done"):
        return
    failed = fact.values["value"] in ("upgrade-failed", "failed")
    yield _from(fact, Sign.UPGRADE_FAILED if failed else Sign.UPGRADE_UNFINISHED, state=fact.values["value"])


def _mig_labels(labels: dict[str, Fact]) -> Iterator[Fact]:
    fact = labels.get("nvidia.com/mig.config.state")
    if fact is not None and fact.values["value"] in ("failed", "pending", "rebooting"):
        failed = fact.values["value"] == "failed"
        yield _from(fact, Sign.MIG_CONFIG_FAILED if failed else Sign.MIG_CONFIG_STUCK, state=fact.values["value"])
    product = labels.get("nvidia.com/gpu.product")
    if product is not None and "mig-invalid" in product.values["value"].lower():
        yield _from(product, Sign.MIG_MIXED)


def _compat(facts: Facts) -> Iterator[Fact]:
    """The driver below what the image's CUDA needs inside its major."""
    driver = next((fact for fact in facts.of(Sign.DRIVER_VERSION) if version_of(fact.values["version"])), None)
    image = facts.first(Sign.CUDA_OF_IMAGE)
    if driver is None or image is None:
        return
    floor = floor_of(version_of(image.values["version"]))
    have = version_of(driver.values["version"])
    if floor is not None and have < floor[: len(have)]:
        yield _from(
            image, Sign.DRIVER_BELOW_CUDA, driver=driver.values["version"], cuda=image.values["version"], floor=".".join(map(str, floor))
        )


def _kubelet(facts: Facts) -> Iterator[Fact]:
    """Kubelet 1.34.0 and 1.34.1 lose the registration of DRA plugins; 1.34.2 does not."""
    for fact in facts.of(Sign.KUBELET_VERSION):
        if version_of(fact.values["version"]) in ((1, 34, 0), (1, 34, 1)):
            yield _from(fact, Sign.KUBELET_LOSES_DRA)


_HOST_TROUBLE: Final = (
    Sign.SMI_NO_DRIVER,
    Sign.VERSION_MISMATCH,
    Sign.MODULE_NOT_LOADED,
    Sign.MODULE_LOAD_FAILED,
    Sign.MODULE_NOT_FOUND,
    Sign.SMI_NO_DEVICES,
    Sign.GPU_LOST,
    Sign.OFF_BUS,
    Sign.ADAPTER_INIT_FAILED,
    Sign.SMI_HANGS,
    Sign.UNSIGNED,
    Sign.NOUVEAU,
)


def _sides(facts: Facts) -> Iterator[Fact]:
    """Host good or bad, from whatever says so: the bit that separates layers 0 to 3 from 4 to 7."""
    bad = next((fact for sign in _HOST_TROUBLE for fact in facts.of(sign, Side.HOST)), None)
    good = facts.first(Sign.SMI_GOOD, Side.HOST)
    if bad is not None:
        yield _from(bad, Sign.HOST_BAD)
    elif good is not None:
        yield _from(good, Sign.HOST_GOOD)
    if facts.has(Sign.NVML_UNKNOWN) and good is None:
        for fact in facts.of(Sign.NVML_UNKNOWN):
            if fact.kind is Kind.SMI_HOST:
                yield _from(fact, Sign.SMI_BAD)
