"""
Other members of the same kind: a case with other versions, addresses, node names, prefixes, line order, and unrelated lines around it.

What a rewrite changes is what differs between two people with the same fault; what it keeps is the fault.
"""

from __future__ import annotations

import random
import re

_PREFIXES = (
    "",
    "[{n}.123456] ",
    "2026-11-{d:02d}T10:{d:02d}:01Z ",
    "Nov {d:02d} 10:00:01 gpu-{n} kernel: ",
    "time=2026-11-{d:02d}T10:00:00Z level=error msg=",
    "I11{d:02d} 10:00:00.123456       1 main.go:{n}] ",
    "2026/11/{d:02d} 10:00:00 ",
)
_LOGS = ("log", "dmesg", "journal", "syslog", "events")

_NOISE = (
    "usb 1-{n}: new high-speed USB device number {n} using xhci_hcd",
    'audit: type=1400 audit(1700000{n}.1:{n}): apparmor="STATUS" operation="profile_load"',
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali{n}: link becomes ready",
    "Started Session {n} of user root.",
    "eth{n}: renamed from veth{n}",
    "kubelet: I1101 10:00:00.0 {n} reconciler_common.go:218] VerifyControllerAttachedVolume started for volume {n}",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:58:38 UTC 2026",
    "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  570.124.06",
    "nvidia: module license 'NVIDIA' taints kernel.",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "nvidia-uvm: Loaded the UVM driver, major device number {n}.",
    "EXT4-fs (nvme{n}n1p1): mounted filesystem with ordered data mode",
    'containerd: level=info msg="StartContainer for \\"{n}abc\\" returns successfully"',
    "systemd[1]: Starting Daily apt download activities...",
    "GET /healthz 200 {n}ms",
    'INFO:     127.0.0.1:{n} - "GET /metrics HTTP/1.1" 200 OK',
    "step {n} loss 2.{n} tokens/s 1200{n}",
    "pcieport 0000:00:1c.{n}: PME: Signaling with IRQ {n}",
    "pci 0000:3a:05.{n}: BAR 13: no space for [io  size 0x1000]",
    "mlx5_core 0000:a1:00.{n}: firmware version: 28.39.{n}",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate",
    "TCP: request_sock_TCP: Possible SYN flooding on port {n}. Sending cookies.",
)


def noise_lines(rng: random.Random, count: int) -> list[str]:
    """Lines as they stand in any log of a healthy machine."""
    return [rng.choice(_NOISE).format(n=rng.randrange(1, 9)) for _ in range(count)]


def variant(evidence: dict[str, str], seed: int) -> dict[str, str]:
    """One rewrite, decided by `seed`."""
    rng = random.Random(seed)
    keys = list(evidence)
    rng.shuffle(keys)
    return {key: _rewritten(key, evidence[key], rng) for key in keys}


def _rewritten(key: str, text: str, rng: random.Random) -> str:
    text = re.sub(r"\b0000:([0-9a-f]{2}):00\b", lambda _: f"0000:{rng.randrange(16, 250):02x}:00", text)
    text = re.sub(r"\bpid=\d+", lambda _: f"pid={rng.randrange(100, 99_999)}", text)
    text = re.sub(r"/dev/nvidia\d\b", lambda _: f"/dev/nvidia{rng.randrange(8)}", text)
    text = re.sub(r"GPU-[0-9a-f-]+", lambda _: f"GPU-{rng.getrandbits(64):016x}", text)
    if not any(word in key for word in _LOGS):
        return text
    lines = text.split("\n")
    if len(lines) > 1 and all(":" not in line[:3] for line in lines) and not text.startswith("Capacity") and rng.random() < 0.5:
        rng.shuffle(lines)
    prefix = rng.choice(_PREFIXES)
    lines = [prefix.format(n=rng.randrange(10, 9_999), d=rng.randrange(1, 28)) + line for line in lines]
    around = noise_lines(rng, 200)
    for line in lines:  # in their order, at random places
        around.insert(rng.randrange(len(around) + 1), line)
    return "\n".join(around)
