"""
Taking a plane down: jobs first, by their own stop ladder, then agents and what is left on their nodes, the server last.

Called by the CLI. What waits in the queue stays there for the next start; what runs is cancelled, unless it is to be kept. Where no
server answers, the supervisors are told directly: nothing that `shoal up` started may be left behind unseen.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal.base.errors import ShoalError
from shoal.model.job import LIVE, CancelMode, Job
from shoal.run.processes import find_process, find_processes, is_alive, stop_process
from shoal.run.up import SERVER, Place, Tell

if TYPE_CHECKING:
    from shoal.client.api import Api

MARGIN_S = 5.0
"""Over a job's own grace: the way to the node and back."""
FORCE_S = 15.0
AGENT_GRACE_S = 10.0
SERVER_GRACE_S = 15.0
WORK_S = 10.0
"""For work that nobody knows of any more, when a node's supervisor is told directly."""
LOOK_EVERY_S = 0.1
REASON = "shoal down"


class Downed(msgspec.Struct, frozen=True, kw_only=True):
    """What was stopped. `left` names what still runs: empty unless something cannot be killed, or jobs were to be kept."""

    stopped: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def bring_down(state_dir: Path, tell: Tell, *, keep_jobs: bool = False, grace: str | None = None) -> Downed:
    """Nothing of the plane runs when this returns, but what `left` names. `grace` is in place of the jobs' own."""
    place = Place(state_dir)
    with place.locked():
        cancelled: tuple[str, ...] = ()
        processes = find_processes(place.processes)
        agents = [process for process in processes if process.name != SERVER]
        server = find_process(place.processes, SERVER)
        if server is not None and place.url.exists() and not keep_jobs:
            cancelled = _cancel_jobs(place, grace, tell)
        left = [process.name for process in agents if not stop_process(place.processes, process, AGENT_GRACE_S)]
        for folder in _node_folders(place):
            if not keep_jobs:
                left.extend(_end_work(folder, tell))
            elif _has_supervisor(folder):
                left.append(f"the work on node {folder.name}")
            _tidy(folder)
        if server is not None and not stop_process(place.processes, server, SERVER_GRACE_S):
            left.append(server.name)
        place.url.unlink(missing_ok=True)
    stopped = tuple(process.name.removeprefix("agent-") for process in processes if not is_alive(process))
    return Downed(stopped=stopped, cancelled=cancelled, left=tuple(left))


def _cancel_jobs(place: Place, grace: str | None, tell: Tell) -> tuple[str, ...]:
    """The addresses of the jobs that were cancelled: all that held devices. Nodes take no new work meanwhile."""
    from shoal.client.settings import find_settings

    api = find_settings({}, url=place.url.read_text().strip(), state_dir=place.root).api(patience_s=5.0)
    try:
        _close_nodes(place, api)
        jobs = [job for job in api.jobs.list_all(states=tuple(str(state) for state in LIVE)) if not job.is_array]
        if not jobs:
            return ()
        tell(f"cancelling {len(jobs)} job{'s' if len(jobs) > 1 else ''}: {', '.join(job.address for job in jobs[:5])}")
        for job in jobs:
            api.jobs.cancel(job.id, grace=grace, reason=REASON)
        if not _have_ended(api, jobs, _grace_s(jobs, grace) + MARGIN_S):
            tell("killing what has not ended")
            for job in jobs:
                api.jobs.cancel(job.id, mode=CancelMode.FORCE, reason=REASON)
            _have_ended(api, jobs, FORCE_S)
        return tuple(job.address for job in jobs)
    except ShoalError as error:
        tell(f"the server cannot be asked to cancel jobs ({error.message}); stopping them on their nodes")
        return ()


def _close_nodes(place: Place, api: Api) -> None:
    """The plane's own nodes take no new work, and the next start knows which to give back."""
    remembered = place.remembered()
    names = {node.name for node in remembered.nodes if node.url is None}
    ready = [view.node.id for view in api.nodes.list() if view.node.id in names and str(view.node.state) == "READY"]
    place.remember(msgspec.structs.replace(remembered, cordoned=tuple(dict.fromkeys((*remembered.cordoned, *ready)))))
    for name in ready:
        api.nodes.cordon(name, REASON)


def _grace_s(jobs: list[Job], grace: str | None) -> float:
    from shoal.base.units import parse_duration_ms

    if grace is not None:
        return parse_duration_ms(grace) / 1_000
    return max(job.spec.stop.grace.ms for job in jobs) / 1_000


def _have_ended(api: Api, jobs: list[Job], within_s: float) -> bool:
    until = time.monotonic() + within_s
    for job in jobs:
        left_s = until - time.monotonic()
        if api.jobs.wait(job.id, timeout_s=max(0.0, left_s)).state in LIVE:
            return False
    return True


# --- what is left on the nodes --------------------------------------------------------------------------------------------
def _node_folders(place: Place) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(folder for folder in (place.root / "nodes").iterdir() if folder.is_dir())
    return []


def _has_supervisor(folder: Path) -> bool:
    """True while a supervisor is in charge of the node: it holds a lock for as long as it lives."""
    with suppress(FileNotFoundError):
        handle = os.open(folder / "supervisor" / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False


def _end_work(folder: Path, tell: Tell) -> list[str]:
    """What still runs on the node after its supervisor was told to end everything and itself."""
    from shoal.agent.ending import end_work

    if not _has_supervisor(folder):
        return []
    tell(f"ending what runs on node {folder.name}")
    left = list(end_work(folder, WORK_S))
    until = time.monotonic() + WORK_S
    while _has_supervisor(folder) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    return left or ([f"the supervisor of node {folder.name}"] if _has_supervisor(folder) else [])


def _tidy(folder: Path) -> None:
    """Directories that the node had outside of the state directory go, unless something lies in them."""
    from shoal.agent.home import leave_home

    if not _has_supervisor(folder):
        leave_home(folder)
