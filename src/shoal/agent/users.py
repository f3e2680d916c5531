"""
Whose process it is. An agent that runs as root serves every Unix user that the control plane maps principals to; one that does not
serves only the user that it runs as, and the node's facts say so.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from shoal.agent.environment import Login
from shoal.agent.supervisor.wire import User
from shoal.agent.unprepared import Unprepared

INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Passed on from the agent to tasks of its own user. Nothing else is: the agent's environment may hold tokens."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`user` is None when the task runs as the agent itself does: nothing has to be changed then."""

    user: User | None
    login: Login
    uid: int
    gid: int


def identity_of(unix_user: str | None, environ: dict[str, str], own_uid: int) -> Identity:
    """The identity that a job's tasks get on this machine, from an agent that runs as `own_uid`. Raises Unprepared."""
    if unix_user is None:
        return _own(own_uid, environ)
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError:
        raise Unprepared(f"Unix user {unix_user!r} is not known on this node") from None
    if entry.pw_uid == own_uid:
        return _own(own_uid, environ)
    if own_uid != 0:
        raise Unprepared(
            f"the job runs as Unix user {unix_user!r}, but this node's agent runs as {_name_of(own_uid)!r} and serves that user only; "
            f"start it as root to serve others"
        )
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    login = Login(entry.pw_name, _home(entry.pw_dir), entry.pw_shell or "/bin/sh", {})
    return Identity(User(entry.pw_uid, entry.pw_gid, groups), login, entry.pw_uid, entry.pw_gid)


def _own(uid: int, environ: dict[str, str]) -> Identity:
    inherited = {name: environ[name] for name in INHERITED if name in environ}
    try:
        entry = pwd.getpwuid(uid)
        login = Login(entry.pw_name, _home(entry.pw_dir), entry.pw_shell or "/bin/sh", inherited)
    except KeyError:  # a container may run as a number without a name
        login = Login(str(uid), _home(environ.get("HOME", "")), "/bin/sh", inherited)
    return Identity(None, login, uid, os.getegid())


def _home(path: str) -> str:
    return path if os.path.isdir(path) else ""


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
