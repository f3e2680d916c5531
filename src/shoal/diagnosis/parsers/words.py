"""Free words that people write about a machine: what works, which versions, which GPU, how many. Facts from here are *reported*."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shoal.diagnosis.evidence import Kind, Piece, Side
from shoal.diagnosis.facts import Fact
from shoal.diagnosis.lines import Line
from shoal.diagnosis.parsers.making import make
from shoal.diagnosis.signs import Sign

_GOOD: Final = re.compile(
    r"\b(?:works?(?: fine)?|working|ok(?:ay)?|fine|healthy|good|normal(?:ly)?|succeed(?:s|ed)|success(?:ful(?:ly)?)?|passes|passed"
    r"|lists? (?:all|\d+)|shows? (?:all|\d+)|sees? (?:all|[1-9]\d*)|\d+ gpus? (?:listed|visible|shown|present|seen|detected))\b",
    re.IGNORECASE,
)
_BAD: Final = re.compile(
    r"\b(?:not|no|never|fail\w*|error|cannot|can't|doesn't|unhealthy|missing|lost|hang\w*|broken|unable|couldn't|err!?)\b", re.IGNORECASE
)
_ON_HOST: Final = re.compile(
    r"\b(?:on|from|at) (?:the )?(?:host|node|bare ?metal)\b|\bhost\b.{0,20}nvidia-smi|nvidia-smi.{0,30}\bhost\b", re.IGNORECASE
)
_IN_CONTAINER: Final = re.compile(
    r"\b(?:in|inside|from|within) (?:(?:the|a|every|each|all|worker|job|same) )*(?:\w+ )?(?:container|pod)s?\b", re.IGNORECASE
)
_SMI: Final = re.compile(r"nvidia-smi|\bsmi\b", re.IGNORECASE)
_DRIVER: Final = re.compile(
    r"driver(?:s)?(?: version)?[ :=]+(?:is )?(?:nvidia )?v?R?(?P<version>\d{3}(?:\.\d+){0,2})\b"
    r"|\bR(?P<branch>[3-6]\d\d)(?:\.[\dx]+)?\b(?= (?:host )?driver|,|$)"
    r"|Kernel Module(?: for \S+)?\s+(?P<module>\d{3}\.[\d.]*\d)",
    re.IGNORECASE,
)
_IMAGE_CUDA: Final = re.compile(
    r"image\S* (?:\w+ ){0,3}cuda[ :=]*(?P<a>\d+\.\d+)|cuda[ -](?P<b>\d+\.\d+) (?:image|container|base|wheel|runtime)"
    r"|nvidia/cuda:(?P<c>\d+\.\d+)"
    r"|CUDA_VERSION\W{1,3}(?P<d>\d+\.\d+)|\+cu(?P<e>\d{2})(?P<f>\d)\b|NVIDIA_REQUIRE_CUDA\W{1,3}cuda>=(?P<g>\d+\.\d+)",
    re.IGNORECASE,
)
_DRIVER_CUDA: Final = re.compile(r"Driver Version:.{0,40}CUDA Version:\s*(?P<version>\d+\.\d+)", re.IGNORECASE)
_PRODUCT: Final = re.compile(
    r"\b(?P<consumer>(?:GeForce )?(?:RTX|GTX) ?\d{3,4}(?: ?Ti| ?SUPER| ?D)*|TITAN \w+)\b(?! Ada| SFF)"
    r"|\b(?P<data>[ABHV]\d{2,3}[GS]?|L40S?|L4|T4|GB?[23]00|GH200|H20|RTX (?:A\d{4}|PRO \d{4}|6000))\b",
    re.IGNORECASE,
)
_OF: Final = re.compile(r"(?P<seen>\d+) (?:out )?of (?:the )?(?P<wanted>\d+) gpus?|(?P<seen2>\d+)/(?P<wanted2>\d+) gpus?\b", re.IGNORECASE)
_SMI_COUNT: Final = re.compile(
    r"(?:nvidia-smi|nvml|smi)\b.{0,30}?(?:lists?|shows?|sees?|finds?|reports?|count\W+)\s*(?:only )?(?P<a>\d+)"
    r"|^(?:only )?(?P<b>\d+) gpus? (?:are )?(?:listed|visible|shown|seen|detected)",
    re.IGNORECASE,
)
_PCI_COUNT: Final = re.compile(
    r"\blspci\b.{0,40}?(?:lists?|shows?|sees?|finds?|reports?|has|count\W+|:)\s*(?P<count>\d{1,2})\b(?![:.])", re.IGNORECASE
)
_NO_PCI: Final = re.compile(
    r"lspci.{0,40}(?:empty|nothing|shows? no|no (?:nvidia|gpu|output|device)|none)|no nvidia (?:device|gpu"
    r"|controller)s? (?:on (?:the )?(?:bus|pci)|in lspci)"
    r"|(?:no|without) (?:a )?gpu (?:attached|in the (?:machine|vm)|on (?:the|this) node)",
    re.IGNORECASE,
)
_CLAUSES: Final = re.compile(r"[;\n]|(?<=[a-z])\. |, (?:but|and|while) | but ")

WORD_KINDS: Final = frozenset(
    {
        Kind.HOST,
        Kind.NODE,
        Kind.NOTE,
        Kind.HARDWARE,
        Kind.SMI,
        Kind.SMI_HOST,
        Kind.SMI_CONTAINER,
        Kind.LISTING,
        Kind.IMAGE,
        Kind.PODS,
        Kind.APP_LOG,
        Kind.RUNTIME_CONFIG,
        Kind.CONTAINER_LOG,
        Kind.SANDBOX,
        Kind.CLAIM,
        Kind.KERNEL_LOG,
    }
)
SMI_KINDS: Final = {Kind.SMI: Side.HOST, Kind.SMI_HOST: Side.HOST, Kind.SMI_CONTAINER: Side.CONTAINER}


def words_in(piece: Piece, line: Line) -> Iterator[Fact]:
    """Facts from the words of one line."""
    if piece.kind not in WORD_KINDS:
        return
    yield from _versions(piece, line)
    yield from _counts(piece, line)
    for clause in _CLAUSES.split(line.message):
        yield from _smi_said(piece, line, clause)
    if piece.kind in (Kind.HARDWARE, Kind.HOST, Kind.NODE, Kind.SMI, Kind.SMI_HOST, Kind.APP_LOG, Kind.LISTING, Kind.NOTE, Kind.IMAGE):
        for match in _PRODUCT.finditer(line.message):
            word = match["consumer"] or match["data"]
            yield make(Sign.PRODUCT, piece, line, reported=True, product=word.lower(), consumer="yes" if match["consumer"] else "no")


def _smi_said(piece: Piece, line: Line, clause: str) -> Iterator[Fact]:
    """`works on host`, `nvidia-smi ok in the container`: the one bit of host against container, as somebody put it."""
    said_of_smi = piece.kind in SMI_KINDS or _SMI.search(clause)
    said_of_driver = piece.kind in (Kind.HOST, Kind.NODE) and re.search(r"\bdriver\b", clause, re.IGNORECASE)
    if not (said_of_smi or said_of_driver) or not _GOOD.search(clause) or _BAD.search(clause) or "|" in clause:
        return
    if re.search(r"\bctr\b", clause):
        return  # another way into the container, which proves nothing about the kubelet's
    side = SMI_KINDS.get(piece.kind, Side.UNKNOWN)
    if _IN_CONTAINER.search(clause):
        side = Side.CONTAINER
    elif _ON_HOST.search(clause) or piece.kind in (Kind.HOST, Kind.NODE):
        side = Side.HOST
    if side is not Side.UNKNOWN:
        yield make(Sign.SMI_GOOD, piece, line, side=side, reported=True)


def _versions(piece: Piece, line: Line) -> Iterator[Fact]:
    text = line.message
    for match in _DRIVER.finditer(text):
        version = match["version"] or match["branch"] or match["module"]
        if int(version.split(".")[0]) >= 300:
            yield make(Sign.DRIVER_VERSION, piece, line, reported=match["module"] is None, version=version)
    if told := _DRIVER_CUDA.search(text):
        yield make(Sign.CUDA_OF_DRIVER, piece, line, version=told["version"])
    for match in _IMAGE_CUDA.finditer(text):
        plain = next((match[name] for name in "abcdg" if match[name]), None)
        yield make(Sign.CUDA_OF_IMAGE, piece, line, reported=True, version=plain or f"{match['e']}.{match['f']}")


def _counts(piece: Piece, line: Line) -> Iterator[Fact]:
    text = line.message
    if both := _OF.search(text):
        yield make(Sign.COUNT, piece, line, reported=True, by="smi", count=both["seen"] or both["seen2"])
        yield make(Sign.COUNT, piece, line, reported=True, by="pci", count=both["wanted"] or both["wanted2"])
        return
    if match := _SMI_COUNT.search(text):
        yield make(Sign.COUNT, piece, line, reported=True, by="smi", count=match["a"] or match["b"])
    if match := _PCI_COUNT.search(text):
        yield make(Sign.COUNT, piece, line, reported=True, by="pci", count=match["count"])
    if _NO_PCI.search(text):
        yield make(Sign.NO_GPU_ON_BUS, piece, line, reported=True)
