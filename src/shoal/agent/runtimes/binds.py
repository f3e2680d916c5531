"""
Mounts of a job on a machine without containers: which can be made, and why the others are refused.

As root: bind mounts in the task's own mount namespace (`supervisor.binds`). The target must be there already: making `/data` on the
machine itself would change it for everybody. Not as root: nothing can be mounted, so only a directory at its own place can be had.
"""

from __future__ import annotations

import os

from shoal.agent.supervisor.wire import Bind
from shoal.agent.unprepared import Unprepared
from shoal.model.job import Mount

SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run")
"""Covering these would fool programs that trust what lies there, and they would break besides."""


def binds_of(mounts: tuple[Mount, ...], as_root: bool) -> tuple[Bind, ...]:
    """What the supervisor has to bind for a job. Raises Unprepared."""
    return tuple(bind for mount in mounts for bind in _bind(mount, as_root))


def _bind(mount: Mount, as_root: bool) -> tuple[Bind, ...]:
    if any(mount.target == place or mount.target.startswith(place + "/") for place in SYSTEM):
        raise Unprepared(f"mount target {mount.target} belongs to the system; choose a directory of your own", fatal=True)
    if not os.path.isdir(mount.source):
        raise Unprepared(f"mount source {mount.source} is no directory on this node")
    in_place = os.path.normpath(mount.source) == os.path.normpath(mount.target)
    if in_place and not mount.read_only:
        return ()
    if not as_root:
        wish = "read-only mounts need" if in_place else f"{mount.source} at {mount.target} needs"
        raise Unprepared(f"{wish} an agent that runs as root; on this node only a directory at its own place can be had")
    if not os.path.isdir(mount.target):
        raise Unprepared(f"mount target {mount.target} is no directory on this node; make it there, or mount at {mount.source}")
    return (Bind(mount.source, mount.target, mount.read_only),)
