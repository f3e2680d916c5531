"""Where the kernel's control group hierarchies are mounted, and which place in each is ours."""

from __future__ import annotations

import os
from dataclasses import dataclass

VERSION_2 = "cgroup2"
V1_CONTROLLERS = ("freezer", "pids", "memory", "cpu", "cpuacct", "devices", "name=systemd")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy. `own` is the directory of the group that this process is in."""

    version: int
    names: tuple[str, ...]
    mount: str
    own: str


def find_hierarchies(mountinfo: str, cgroup: str) -> tuple[Hierarchy, ...]:
    """The hierarchies told by the texts of /proc/self/mountinfo and /proc/self/cgroup, in mount order."""
    mine = _own_paths(cgroup)
    found: list[Hierarchy] = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or kind[0] not in ("cgroup", VERSION_2):
            continue
        root, mount = _unescape(fields[3]), _unescape(fields[4])
        options = kind[2].split(",") if len(kind) > 2 else []
        names = () if kind[0] == VERSION_2 else tuple(name for name in V1_CONTROLLERS if name in options)
        path = mine.get(names[0] if names else "", "/")
        found.append(Hierarchy(2 if kind[0] == VERSION_2 else 1, names, mount, _inside(mount, root, path)))
    return tuple(found)


def read_hierarchies() -> tuple[Hierarchy, ...]:
    """Those of this machine."""
    with open("/proc/self/mountinfo") as mountinfo, open("/proc/self/cgroup") as cgroup:
        return find_hierarchies(mountinfo.read(), cgroup.read())


def _own_paths(cgroup: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            paths[name] = path
    return paths


def _inside(mount: str, root: str, path: str) -> str:
    """`path` of a hierarchy as a directory under `mount`, which shows the part of the hierarchy below `root`."""
    if root != "/" and path.startswith(root):
        path = path[len(root) :]
    own = os.path.join(mount, path.lstrip("/")).rstrip("/")
    return own if os.path.isdir(own) else mount


def _unescape(text: str) -> str:
    """mountinfo writes blank, tab, newline and backslash as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
