"""The best group driver that this machine lets us use, found by trying it."""

from __future__ import annotations

import contextlib
import os

from shoal.agent.supervisor.groups.drivers import Version1Groups, Version2Groups
from shoal.agent.supervisor.groups.limiters import Limiter, NoLimiter, Version1Limiter, Version2Limiter
from shoal.agent.supervisor.groups.mounts import Hierarchy, read_hierarchies
from shoal.agent.supervisor.groups.protocol import Groups, check_name
from shoal.agent.supervisor.groups.tree import Tree, write_file
from shoal.agent.supervisor.groups.weak import WeakGroups

TRACKING_ORDER = ("freezer", "pids", "cpuacct", "devices", "name=systemd", "memory")
AGENT_LEAF = "agent"
"""A service with `Delegate=yes` and `DelegateSubgroup=agent` keeps its own processes in this leaf: then controllers can be handed down."""


def choose_groups(name: str, wanted: str = "auto") -> Groups:
    """
    The driver for the groups called `name`: cgroup2, else cgroup1, else weak; or the `wanted` one.

    Raises OSError when a wanted kernel driver cannot be used here.
    """
    check_name(name)
    try:
        hierarchies = read_hierarchies()
    except OSError:
        hierarchies = ()
    if wanted in ("auto", "cgroup2"):
        found2 = _version2(name, hierarchies)
        if found2 is not None:
            return found2
    if wanted in ("auto", "cgroup1"):
        found1 = _version1(name, hierarchies)
        if found1 is not None:
            return found1
    if wanted not in ("auto", "weak"):
        raise OSError(f"{wanted} groups cannot be made here: no such hierarchy is mounted, or this user may not write to it")
    return WeakGroups(name)


def _version2(name: str, hierarchies: tuple[Hierarchy, ...]) -> Groups | None:
    for hierarchy in hierarchies:
        if hierarchy.version != 2:
            continue
        home = os.path.join(hierarchy.own, "cgroup.procs")
        for parent in _parents(hierarchy):
            tree = _usable(Tree(os.path.join(parent, name)), home)
            if tree is not None:
                handed_down = _hand_down(parent, tree.base)
                limiter = Version2Limiter(tree, handed_down) if "memory" in handed_down else _version1_limiter(name, hierarchies)
                return Version2Groups(tree, limiter, home)
    return None


def _parents(hierarchy: Hierarchy) -> tuple[str, ...]:
    """Where the base may go: the true root (which alone may hold processes and hand down controllers), the service, our own group."""
    places: list[str] = []
    if os.geteuid() == 0 and not os.path.exists(os.path.join(hierarchy.mount, "cgroup.type")):
        places.append(hierarchy.mount)
    if os.path.basename(hierarchy.own) == AGENT_LEAF:
        places.append(os.path.dirname(hierarchy.own))
    places.append(hierarchy.own)
    return tuple(dict.fromkeys(places))


def _hand_down(parent: str, base: str) -> tuple[str, ...]:
    """Controllers that now work for children of `base`. A group with processes of its own refuses: then there are none."""
    handed = []
    for controller in ("memory", "cpu", "pids"):
        word = f"+{controller}"
        if all(write_file(os.path.join(group, "cgroup.subtree_control"), word) for group in (parent, base)):
            handed.append(controller)
    return tuple(handed)


def _version1(name: str, hierarchies: tuple[Hierarchy, ...]) -> Groups | None:
    for controller in TRACKING_ORDER:
        hierarchy = _version1_hierarchy(controller, hierarchies)
        if hierarchy is None:
            continue
        home = os.path.join(hierarchy.own, "cgroup.procs")
        tree = _usable(Tree(os.path.join(hierarchy.own, name)), home)
        if tree is not None:
            return Version1Groups(tree, _version1_limiter(name, hierarchies), home)
    return None


def _version1_limiter(name: str, hierarchies: tuple[Hierarchy, ...]) -> Limiter:
    trees: dict[str, Tree] = {}
    for controller in ("memory", "cpu"):
        hierarchy = _version1_hierarchy(controller, hierarchies)
        if hierarchy is not None:
            tree = _usable(Tree(os.path.join(hierarchy.own, name)), os.path.join(hierarchy.own, "cgroup.procs"))
            if tree is not None:
                trees[controller] = tree
    return Version1Limiter(trees.get("memory"), trees.get("cpu")) if trees else NoLimiter()


def _version1_hierarchy(controller: str, hierarchies: tuple[Hierarchy, ...]) -> Hierarchy | None:
    return next((h for h in hierarchies if h.version == 1 and controller in h.names), None)


def _usable(tree: Tree, home: str) -> Tree | None:
    """`tree` if its base exists now and this process can go in and come back; else nothing is left behind."""
    try:
        os.mkdir(tree.base)
    except FileExistsError:
        pass
    except OSError:
        return None
    trial = os.path.join(tree.base, "trial")
    with contextlib.suppress(OSError):
        os.mkdir(trial)
    usable = write_file(os.path.join(trial, "cgroup.procs"), "0") and write_file(home, "0")
    with contextlib.suppress(OSError):
        os.rmdir(trial)
    if not usable:
        with contextlib.suppress(OSError):
            os.rmdir(tree.base)
        return None
    return tree


def remove_base(name: str) -> None:
    """The empty base directories go, in every hierarchy."""
    for hierarchy in read_hierarchies():
        for parent in (*_parents(hierarchy), hierarchy.own):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(parent, name))
