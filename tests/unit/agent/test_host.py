"""The host runtime's small decisions: who runs it, which mounts, how a script is run, what is left behind."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from orders import JOB, MEETING, prepare

from shoal.agent.environment import Meeting
from shoal.agent.home import make_home, safe
from shoal.agent.ports import hold_port
from shoal.agent.runtimes.binds import binds_of
from shoal.agent.runtimes.host import HostRuntime, _script_argv, signal_number
from shoal.agent.supervisor.groups.mounts import find_hierarchies
from shoal.agent.supervisor.groups.protocol import check_name
from shoal.agent.supervisor.wire import Bind
from shoal.agent.unprepared import Unprepared
from shoal.agent.users import identity_of
from shoal.base.errors import NotFound, Unavailable
from shoal.base.rng import Rng
from shoal.model.command import Prepare
from shoal.model.job import Elastic, JobSpec, Mount, WorkDir
from shoal.model.values import CountRange
from shoal.model.wire import LeaseTerms

ME = pwd.getpwuid(os.geteuid()).pw_name


class Shelf:
    """A source of files and secrets with nothing on it, or with what it was given."""

    def __init__(self, secrets: dict[str, bytes] | None = None, error: Exception | None = None) -> None:
        self.given = secrets or {}
        self.error = error

    def fetch_blob(self, sha256: str, target: Path) -> None:
        raise self.error or NotFound(f"no blob {sha256}")

    def secrets(self, allocation: str) -> dict[str, bytes]:
        if self.error is not None:
            raise self.error
        return self.given


def runtime_in(tmp_path: Path, shelf: Shelf | None = None) -> HostRuntime:
    return HostRuntime(make_home(tmp_path / "node", tmp_path / "work"), shelf or Shelf(), {"PATH": "/bin", "SHOAL_TOKEN": "secret"})


# --- users ----------------------------------------------------------------------------------------------------------------
def test_the_agent_s_own_user_needs_no_change_and_gets_little_of_its_environment() -> None:
    for user in (None, ME):
        identity = identity_of(user, {"PATH": "/venv/bin", "SHOAL_TOKEN": "secret"}, os.geteuid())
        assert identity.user is None
        assert identity.login.name == ME
        assert identity.login.inherited == {"PATH": "/venv/bin"}


def test_an_unknown_user_is_no_user_of_another_node_either_way() -> None:
    with pytest.raises(Unprepared, match="no-such-user") as refused:
        identity_of("no-such-user", {}, 0)
    assert not refused.value.fatal


def test_root_serves_others_and_passes_nothing_on() -> None:
    identity = identity_of("nobody", {"PATH": "/venv/bin"}, 0)
    assert identity.user is not None
    assert identity.user.uid == pwd.getpwnam("nobody").pw_uid
    assert identity.login.inherited == {}
    assert identity.login.home == ""


def test_who_is_not_root_serves_itself_alone() -> None:
    with pytest.raises(Unprepared, match="serves that user only"):
        identity_of("root", {}, pwd.getpwnam("nobody").pw_uid)


# --- mounts ---------------------------------------------------------------------------------------------------------------
def test_mounts_are_bound_as_root(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "at").mkdir()
    data, at = str(tmp_path / "data"), str(tmp_path / "at")
    assert binds_of((Mount(source=data, target=at, read_only=True),), True) == (Bind(data, at, True),)
    assert binds_of((Mount(source=data, target=data),), True) == ()
    assert binds_of((Mount(source=data, target=data),), False) == ()


@pytest.mark.parametrize(
    ("source", "target", "read_only", "as_root", "says", "fatal"),
    [
        ("/tmp", "/etc", False, True, "belongs to the system", True),
        ("/tmp", "/usr/lib/x", False, True, "belongs to the system", True),
        ("/no/such/source", "/tmp", False, True, "source /no/such/source is no directory", False),
        ("/tmp", "/no/such/target", False, True, "target /no/such/target is no directory", False),
        ("/tmp", "/var/tmp", False, False, "needs an agent that runs as root", False),
        ("/tmp", "/tmp", True, False, "read-only mounts need", False),
    ],
)
def test_mounts_that_cannot_be_are_refused(source: str, target: str, read_only: bool, as_root: bool, says: str, fatal: bool) -> None:
    with pytest.raises(Unprepared, match=says) as refused:
        binds_of((Mount(source=source, target=target, read_only=read_only),), as_root)
    assert refused.value.fatal is fatal
    assert not refused.value.of_node, "the job asks for what is not here; that speaks against no node"


# --- preparing ------------------------------------------------------------------------------------------------------------
def test_the_private_directory_is_private_and_goes(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    order = prepare(JobSpec(run="echo hi", setup="make"))
    runtime.prepare(order)
    runtime.prepare(order)
    private = tmp_path / "work" / order.allocation
    assert {p.name for p in private.iterdir()} == {"work", ".run", ".setup"}
    assert private.stat().st_mode & 0o777 == 0o700
    runtime.clean(order.allocation)
    assert not private.exists()


def test_secrets_are_files_for_the_user_alone_and_are_wiped(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path, Shelf({"token": b"\0binary", "../escape": b"x"}))
    order = prepare(JobSpec(run="true", secrets={"token": "hf"}))
    runtime.prepare(order)
    directory = Path(runtime.task(order, runtime.again(order), MEETING, order.claim.tasks[0]).env["SHOAL_SECRETS"])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {(p.name, p.stat().st_mode & 0o777) for p in directory.iterdir()} == {("token", 0o400), (".._escape", 0o400)}
    assert (directory / "token").read_bytes() == b"\0binary"
    runtime.wipe_secrets(order.allocation)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("spec", "error", "says", "fatal"),
    [
        (JobSpec(run="true", workdir=WorkDir(blob="ab" * 32)), NotFound("no"), "are not on the server", True),
        (JobSpec(run="true", workdir=WorkDir(blob="ab" * 32)), Unavailable("busy"), "could not be fetched", False),
        (JobSpec(run="true", secrets={"a": "b"}), NotFound("project 'default' has no secret 'b'"), "no secret 'b'", True),
        (JobSpec(run="true", secrets={"a": "b"}), Unavailable("busy"), "could not be fetched", False),
    ],
)
def test_what_cannot_be_brought_is_told(spec: JobSpec, error: Exception, says: str, fatal: bool, tmp_path: Path) -> None:
    with pytest.raises(Unprepared, match=says) as refused:
        runtime_in(tmp_path, Shelf(error=error)).prepare(prepare(spec))
    assert refused.value.fatal is fatal


def test_a_work_root_that_has_gone_is_a_reason_and_no_crash(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    shutil.rmtree(tmp_path / "work")
    with pytest.raises(Unprepared, match="No such file or directory") as refused:
        runtime.prepare(prepare())
    assert refused.value.of_node


def test_the_sweep_spares_what_is_held(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    kept, lost = prepare(), prepare(nodes=2, node_rank=1)
    for order in (kept, lost):
        runtime.prepare(order)
    runtime.prepare(kept)
    (tmp_path / "node" / "tasks" / f"{JOB}.1.0.log").write_bytes(b"output")
    doomed = runtime.sweep({kept.allocation}, logs_needed=True)
    assert [Path(path).name for path in doomed] == [f".gone-{lost.allocation}"]
    assert (tmp_path / "work" / kept.allocation).exists()
    assert (tmp_path / "node" / "tasks" / f"{JOB}.1.0.log").exists()
    runtime.sweep(set(), logs_needed=False)
    assert list((tmp_path / "node" / "tasks").iterdir()) == []


# --- orders ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("echo hi", ("/bin/sh", "-e", "/p")),
        ("#!/usr/bin/env python3\nprint(1)", ("/usr/bin/env", "python3", "/p")),
        ("#! /bin/bash -l -x \necho", ("/bin/bash", "-l -x", "/p")),
        ("#!\necho", ("/bin/sh", "-e", "/p")),
        (" #!/bin/bash\n", ("/bin/sh", "-e", "/p")),
    ],
)
def test_a_script_runs_by_its_own_line(text: str, want: tuple[str, ...]) -> None:
    assert _script_argv("/p", text) == want


def test_the_supervisor_is_told_how_long_it_may_go_on_alone(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    opening = runtime.opening(prepare(), LeaseTerms())
    assert (opening.stop_after_ms, opening.grace_ms, opening.signal) == (300_000, 30_000, 15)
    assert runtime.opening(prepare(), LeaseTerms(ttl_ms=400_000)).stop_after_ms == 400_000


def test_rank_0_of_an_interactive_job_gets_a_terminal_and_a_shell(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    order = replace(prepare(tasks=2), spec=JobSpec(interactive=True))
    ready = runtime.again(order)
    first, second = (runtime.task(order, ready, MEETING, task) for task in order.claim.tasks)
    assert first.window is not None
    assert second.window is None
    assert first.argv == (ready.identity.login.shell, "-l")
    assert first.env["TERM"] == "xterm-256color"


def test_hostfiles_are_shared_between_equal_gangs(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    order = prepare(tasks=2)
    assert runtime.write_hostfile(order, MEETING) == runtime.write_hostfile(replace(order, allocation="other"), MEETING)
    assert Path(runtime.write_hostfile(order, MEETING)).read_text() == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n"


def test_a_gang_that_is_resized_in_place_has_a_hostfile_of_its_own_that_keeps_its_name(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path)
    order = prepare(tasks=2)
    elastic = replace(order, spec=replace(order.spec, nodes=CountRange(1, 4), elastic=Elastic(how="in_place")))
    path = runtime.write_hostfile(elastic, MEETING)
    alone = Meeting(MEETING.address, MEETING.port, MEETING.members[:1])
    assert runtime.write_hostfile(elastic, alone) == path
    assert Path(path).read_text() == "10.0.0.1 slots=2\n"
    assert runtime.write_hostfile(replace(elastic, allocation="other"), alone) != path
    runtime.clean(elastic.allocation)
    assert not Path(path).exists()


def test_signals_by_name() -> None:
    assert (signal_number("USR1"), signal_number("SIGINT"), signal_number("what")) == (10, 2, 15)


def test_a_light_job_is_prepared_at_once() -> None:
    runtime = HostRuntime.is_light
    heavy: list[Prepare] = [prepare(JobSpec(run="x", secrets={"a": "b"})), prepare(JobSpec(run="x", workdir=WorkDir(blob="00")))]
    assert [runtime(None, order) for order in (prepare(), *heavy)] == [True, False, False]  # type: ignore[arg-type]


# --- ports, names, hierarchies ----------------------------------------------------------------------------------------------
def test_a_held_port_is_nobody_else_s() -> None:
    rng = Rng(1)
    first = hold_port(rng)
    second = hold_port(rng, first.port)
    assert second.port != first.port
    first.release()
    third = hold_port(rng, first.port)
    assert third.port == first.port
    second.release()
    third.release()


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", "a..b", ".hidden", "x" * 300, "a b"])
def test_group_names_lead_nowhere_else(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a group"):
        check_name(name)
    assert "/" not in safe(name)
    assert safe(name) not in ("", ".", "..") or name == ""


def test_hierarchies_are_read_from_both_versions() -> None:
    mounts = (
        "35 25 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        "36 25 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "37 25 0:32 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "38 25 0:33 / /tmp/with\\040blank rw - cgroup cgroup rw,pids\n"
        "39 25 0:34 / /home rw - ext4 /dev/sda rw\n"
    )
    cgroup = "12:memory:/docker/abc/job\n11:cpu,cpuacct:/x\n10:pids:/\n0::/user.slice\n"
    found = find_hierarchies(mounts, cgroup)
    assert [(h.version, h.names) for h in found] == [(2, ()), (1, ("memory",)), (1, ("cpu", "cpuacct")), (1, ("pids",))]
    assert found[3].mount == "/tmp/with blank"


def test_the_supervisor_imports_little() -> None:
    """It must start fast and stay small: none of the model, no HTTP, no logging."""
    import subprocess

    code = "import sys, shoal.agent.supervisor.__main__; print(*sorted(m for m in sys.modules if m.startswith('shoal')), sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    allowed = ("shoal", "shoal.agent", "shoal.base", "shoal.base.limits")
    assert [name for name in loaded if name not in allowed and not name.startswith("shoal.agent.supervisor")] == []
