"""
Will this image start on that driver: the one rule of CUDA runtime against driver, with both exceptions.

`judge_cuda` is that rule by itself, for callers that know driver and image already.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

import msgspec

from shoal.facts import cuda
from shoal.facts.cuda_forward import FORWARD_BRANCHES, FORWARD_CLASSES, TABLE_DATE
from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask
from shoal.planning.topic import Topic

_VERSION: Final = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}")


class CudaCompat(msgspec.Struct, frozen=True, kw_only=True):
    """An image's CUDA runtime and a node's driver."""

    runtime: Annotated[str, Ask("CUDA", "CUDA version that the image was built with")]
    driver: Annotated[str, Ask("version", "driver of the node")]
    gpu_class: Annotated[str, Ask("class", "kind of GPU", choices=("datacenter", "consumer", "ngc_ready", "jetson"))] = "datacenter"
    compat_package: Annotated[bool, Ask("bool", "the image has the forward-compatibility package")] = False
    uses_ptx_jit: Annotated[bool, Ask("bool", "the application compiles PTX of its own toolkit at run time")] = False
    driver_cuda: Annotated[str | None, Ask("CUDA", "CUDA version that the driver offers; else from the table")] = None
    compat_branch_supported: Annotated[bool | None, Ask("bool", "the package supports the driver's branch; else from the table")] = None
    user_driver: Annotated[str | None, Ask("version", "version of the user-mode driver in the container, if it is another")] = None
    required_cuda: Annotated[str | None, Ask("CUDA", "the image's own constraint (NVIDIA_REQUIRE_CUDA)")] = None


class Verdict(NamedTuple):
    """`reason` is a stable code; `rule` names the line of the decision table; `error` is the CUDA error a user sees, or 0."""

    runs: bool
    reason: str
    rule: str
    error: int = 0


def offered_by(x: CudaCompat) -> cuda.Version | None:
    """The CUDA version that the driver offers, as told or by the table; None for a driver older than every row."""
    if x.driver_cuda:
        return cuda.version_of(x.driver_cuda)
    driver = cuda.version_of(x.driver)
    oldest = min(cuda.FLOORS)
    return cuda.cuda_of(driver) or ((oldest, 0) if driver >= cuda.FLOORS[oldest][: len(driver)] else None)


def judge_cuda(x: CudaCompat) -> Verdict:
    """The verdict of the decision table, first line that applies."""
    runtime, driver = cuda.version_of(x.runtime), cuda.version_of(x.driver)
    offered = offered_by(x) or (0, 0)
    if x.user_driver is not None and cuda.version_of(x.user_driver) != driver and not x.compat_package:
        return Verdict(False, "driver_mismatch_803", "user-mode and kernel-mode driver differ", 803)
    if offered >= runtime[:2]:
        return Verdict(True, "backward_compatible", "the driver offers the runtime's CUDA version or a newer one")
    floor = cuda.floor_of(runtime)
    # A driver is often told by its first two numbers: it is compared as far as it was told.
    if floor is not None and offered[0] == runtime[0] and driver >= floor[: len(driver)]:
        if x.uses_ptx_jit:
            return Verdict(False, "ptx_jit_222", "same major version, but PTX of the newer toolkit cannot be compiled", 222)
        return Verdict(True, "minor_version_compatibility", "same major version, driver at or above that major's floor")
    if x.compat_package:
        return _forward(x, driver)
    return Verdict(False, "insufficient_driver_35", "the driver is older than the runtime needs, and no exception applies", 35)


def _forward(x: CudaCompat, driver: tuple[int, ...]) -> Verdict:
    if x.gpu_class not in FORWARD_CLASSES:
        return Verdict(False, "forward_unsupported_hardware_804", "forward compatibility is for data-centre GPUs", 804)
    supported = driver[0] in FORWARD_BRANCHES if x.compat_branch_supported is None else x.compat_branch_supported
    if supported:
        return Verdict(True, "forward_compatibility", "forward-compatibility package on a supported driver branch")
    return Verdict(False, "forward_unsupported_branch_803", f"the package does not support driver branch {driver[0]}", 803)


def cuda_compat(x: CudaCompat) -> Answer:
    """Whether the image starts, by which rule, and the least driver that would do."""
    work = Work()
    verdict = judge_cuda(x)
    runtime = cuda.version_of(x.runtime)
    work.find("runs", verdict.runs, "1", verdict.rule)
    work.find("reason", verdict.reason, "1", verdict.rule)
    work.find("error", verdict.error, "1", "the CUDA error that the application sees; 0 for none")
    floor = cuda.floor_of(runtime)
    carries = cuda.SHIPPED_WITH.get((runtime[0], runtime[1] if len(runtime) > 1 else 0))
    work.find("least_driver", _dotted(floor), "1", f"floor of CUDA {runtime[0]}, table of {TABLE_DATE}")
    work.find("full_driver", _dotted(carries), "1", f"driver that came with CUDA {x.runtime}, table of {TABLE_DATE}")
    offered = offered_by(x) or (0, 0)
    refuses = x.required_cuda is not None and cuda.version_of(x.required_cuda) > offered
    work.note(
        f"the container toolkit refuses earlier: the image requires cuda>={x.required_cuda}; NVIDIA_DISABLE_REQUIRE=true skips it", refuses
    )
    work.note("features that need the newer driver still fail at the call", verdict.reason == "minor_version_compatibility")
    return work.done(
        "driver offers the runtime's CUDA: runs; same major, driver at the floor: runs without PTX JIT; package on a data-centre GPU: runs",
        f"Linux x86_64, drivers of the table of {TABLE_DATE}; the image must also hold code for the GPU's architecture",
        verdict.rule,
    )


def _dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(str(part) for part in version) if version else "not in the table"


def validate_cuda_compat(x: CudaCompat) -> tuple[Refusal, ...]:
    """Versions must be versions, and the driver one that the table or the caller can place."""
    for name in ("runtime", "driver", "driver_cuda", "user_driver", "required_cuda"):
        text = getattr(x, name)
        if text is not None and not _VERSION.fullmatch(text):
            return (Refusal("not_a_version", f"{name}: {text!r} is no version; for example 12.8 or 535.104.05", name),)
    words = f"driver {x.driver} is older than the table of {TABLE_DATE} knows; say its CUDA version with driver_cuda"
    return unless(offered_by(x) is not None, "unknown_driver", words, "driver")


CUDA_COMPAT: Final = Topic(CudaCompat, cuda_compat, "", validate_cuda_compat)
