"""
Programs and rights that some tests need and a machine may lack: what each is, how to see that it is there, how to get it.

A test says `@pytest.mark.service("slurm")`. Where the service is missing the test is left out and `make test` names it at its end;
with SHOAL_CI_STRICT=1, as in `.ci/run`, it fails instead, so that nothing stays untried in silence.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STRICT = os.environ.get("SHOAL_CI_STRICT") == "1"
SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


@dataclass(frozen=True)
class Service:
    there: Callable[[], bool]
    how: str


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=SYSTEM_PATH) for name in names)


def _groups(kind: str) -> Callable[[], bool]:
    """Whether control groups of a kind can be made here, found out by making some."""

    def there() -> bool:
        from shoal.agent.supervisor.groups.choose import choose_groups, remove_base

        name = f"shoal-trial-{os.getpid()}"
        try:
            choose_groups(name, kind)
        except OSError:
            return False
        remove_base(name)
        return True

    return there


def postgres_programs() -> Path | None:
    """Where `initdb` and `postgres` are: Debian keeps them out of PATH, by version; the newest."""
    found = shutil.which("initdb", path=SYSTEM_PATH)
    if found is not None:
        return Path(found).resolve().parent
    kept = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(kept, key=lambda path: int(path.parent.name), default=None)


SERVICES = {
    "slurm": Service(
        _programs("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo"), "apt-get install slurmctld slurmd slurm-client munge"
    ),
    "postgres": Service(lambda: postgres_programs() is not None, "apt-get install postgresql"),
    "cgroup1": Service(_groups("cgroup1"), "run as root where a version 1 hierarchy is mounted"),
    "cgroup2": Service(_groups("cgroup2"), "run as root, or in a control group that was delegated to you"),
    "root": Service(lambda: os.geteuid() == 0, "run as root"),
    "git": Service(_programs("git"), "apt-get install git, in a clone"),
}


def missing(name: str) -> str | None:
    """How to get the service if it is missing, else None. An unknown name is a mistake in the test."""
    service = SERVICES[name]
    return None if service.there() else service.how
