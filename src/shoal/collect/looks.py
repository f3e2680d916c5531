"""
What is looked at on a node, cheapest first: each look with its command or files, its time limit and what it needs.

Only looks that change nothing: no module is loaded, no device is made, no service is asked to do more than tell its state.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shoal.diagnosis.evidence import Kind


class Look(NamedTuple):
    """`commands` are tried in order until one is there; `files` are read (patterns allowed, the first of each piece is named in it)."""

    key: str
    kind: Kind
    needs: str
    commands: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    seconds: float = 5.0
    absent: str = ""
    """What the absence of every file is worth saying, as evidence."""
    listing: bool = False
    """Names of the files instead of their text."""


_RUNTIME_FILES = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/var/lib/rancher/*/agent/etc/containerd/config.toml",
    "/etc/crio/crio.conf.d/*",
    "/etc/docker/daemon.json",
    "/etc/nvidia-container-runtime/config.toml",
)

LOOKS: Final[tuple[Look, ...]] = (
    Look(
        "driver_version",
        Kind.LISTING,
        "nothing",
        files=("/proc/driver/nvidia/version",),
        absent="/proc/driver/nvidia/version: no such file",
    ),
    Look("device_nodes", Kind.LISTING, "nothing", files=("/dev/nvidia*", "/dev/nvidia-caps/*"), listing=True),
    Look("modules", Kind.LISTING, "nothing", files=("/proc/modules",)),
    Look("lspci", Kind.LISTING, "lspci", commands=(("lspci", "-d", "10de:", "-nnk"),), absent="lspci -d 10de: shows no NVIDIA device"),
    Look("host_smi", Kind.SMI_HOST, "nvidia-smi", commands=(("nvidia-smi",),), seconds=15),
    Look("nvidia_smi_q", Kind.SMI_HOST, "nvidia-smi", commands=(("nvidia-smi", "-q"),), seconds=20),
    Look(
        "kernel_log",
        Kind.KERNEL_LOG,
        "root or group adm",
        commands=(("journalctl", "-k", "-b", "--no-pager", "-o", "short", "-n", "20000"), ("dmesg", "--ctime"), ("dmesg",)),
        seconds=10,
    ),
    Look("fabric_manager", Kind.FABRIC, "systemd", commands=(("systemctl", "status", "--no-pager", "-n", "20", "nvidia-fabricmanager"),)),
    Look("runtime_config", Kind.RUNTIME_CONFIG, "read access to /etc", files=_RUNTIME_FILES),
    Look("cdi_files", Kind.CDI, "nothing", files=("/etc/cdi/*", "/var/run/cdi/*"), listing=True),
    Look("cdi_list", Kind.CDI, "nvidia-ctk", commands=(("nvidia-ctk", "cdi", "list"),)),
    Look("validations", Kind.LISTING, "nothing", files=("/run/nvidia/validations/.*", "/run/nvidia/validations/*"), listing=True),
    Look(
        "kubelet_sockets",
        Kind.LISTING,
        "root",
        files=("/var/lib/kubelet/device-plugins/*", "/var/lib/kubelet/plugins_registry/*"),
        listing=True,
    ),
    Look(
        "kubelet_log", Kind.KUBELET, "root or group adm", commands=(("journalctl", "-u", "kubelet", "--no-pager", "-n", "500"),), seconds=10
    ),
    Look("scontrol", Kind.SLURM, "Slurm on this machine", commands=(("scontrol", "show", "node", "{host}"),)),
    Look("slurmd_log", Kind.SLURM, "root or group adm", commands=(("journalctl", "-u", "slurmd", "--no-pager", "-n", "200"),), seconds=10),
)
