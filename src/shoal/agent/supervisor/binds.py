"""
Directories of the node shown inside a task at another place: bind mounts in a mount namespace of the task's own.

Runs in a forked child, as root, before the task's user is taken on. A source is opened with the *user's* rights (setfsuid), so a
bind shows nothing that the user could not reach by path, and is mounted through that open descriptor, so nothing can be swapped in
between. The task then runs with no_new_privs: a set-uid program could otherwise be fooled by what was bound over its files.
"""

from __future__ import annotations

import ctypes
import os

from shoal.agent.supervisor.wire import Bind, User

_CLONE_NEWNS = 0x0002_0000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def bind_all(binds: tuple[Bind, ...], user: User | None) -> None:
    """Every bind is in place, in the order given. Raises OSError naming the directory."""
    _call(_libc.unshare(_CLONE_NEWNS), "new mount namespace")
    _mount(None, "/", _MS_REC | _MS_PRIVATE)
    sources = [_open_as(bind.source, user) for bind in binds]  # all before the first bind, so that none is seen through another
    for bind, source in zip(binds, sources, strict=True):
        target = os.open(bind.target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        where = os.readlink(f"/proc/self/fd/{target}")
        _mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{target}", _MS_BIND | _MS_REC)
        _mount(None, where, _MS_BIND | _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if bind.read_only else 0))
        os.close(source)
        os.close(target)


def _open_as(path: str, user: User | None) -> int:
    if user is None or user.uid == 0:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    groups, gid = os.getgroups(), os.getegid()
    os.setgroups(user.groups)
    _libc.setfsgid(user.gid)
    _libc.setfsuid(user.uid)
    try:
        # Not O_PATH: opening for reading is what makes the kernel ask for the user's right to look inside.
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(gid)
        os.setgroups(groups)


def _mount(source: str | None, target: str, flags: int) -> None:
    _call(_libc.mount(source.encode() if source else None, os.fsencode(target), None, flags, None), f"mount on {target}")


def _call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
