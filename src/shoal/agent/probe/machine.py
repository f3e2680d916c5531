"""The machine itself: CPUs, memory, names, boot. Read from /proc and /sys; always real, also where the GPUs are pretended."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit


def cpu_count() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Memory of the machine."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo tells no MemTotal")


def boot_id() -> str:
    """New at every start of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def nics() -> int:
    """Adapters for traffic between GPUs: the RDMA devices that the kernel lists; 0 where there are none."""
    try:
        return len(os.listdir("/sys/class/infiniband"))
    except OSError:
        return 0


def hostname() -> str:
    return socket.gethostname()


def kernel() -> str:
    return os.uname().release


def address_towards(url: str) -> str:
    """Our address on the network that leads to the host of `url`; peers of a gang most likely reach us there too."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        family, kind, _, _, target = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # a datagram socket only looks up the route
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
