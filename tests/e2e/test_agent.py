"""Agents with a real server, real supervisors and real processes: what is killed, what survives, what a task finds."""

from __future__ import annotations

import io
import os
import shutil
import signal
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installation import Installation, eventually, marked

from shoal.agent.supervisor.link import Link
from shoal.client.api import Api
from shoal.client.terminal import read_exit
from shoal.model.job import CancelMode, Job, JobState
from shoal.model.wire import ExecRequest, ExecStream

TASK_MARK = "AGENT_TEST_MARK"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Two nodes; whoever kills something starts it again."""
    installation = Installation(tmp_path_factory.mktemp("agents"), f"agents-{os.getpid()}", nodes=2)
    try:
        installation.start()
        yield installation
        eventually(lambda: not marked(TASK_MARK, installation.mark), 10, "tasks to be gone")
    finally:
        installation.stop()


@pytest.fixture
def api(place: Installation) -> Api:
    return place.api()


def submit(place: Installation, api: Api, **spec: object) -> int:
    env = {TASK_MARK: place.mark, "OUT": str(place.directory)}
    return api.jobs.submit({"name": "test", "env": env, "stop": {"grace": "1s"}, **spec}).number


def running(api: Api, number: int) -> Job:
    eventually(lambda: api.jobs.get(number).job.state is JobState.RUNNING, 20, f"job {number} to run")
    return api.jobs.get(number).job


def node_of(api: Api, number: int) -> str:
    return api.jobs.get(number).places[0][0]


def text(api: Api, number: int, rank: int = 0) -> str:
    return api.logs.read(number, rank).data.decode()


# --- what is killed -------------------------------------------------------------------------------------------------------
def test_a_killed_agent_takes_its_tasks_up_again_with_their_real_exit_codes(place: Installation, api: Api) -> None:
    """
    1. one job ends with 7 while the agent is dead, another runs on past its return
    2. the agent comes back: both end as they did, in their first attempt, and no line of output is lost
    """
    short = submit(place, api, run="echo begin; sleep 0.7; echo end; exit 7", gpus={"count": 4})
    node = node_of(api, running(api, short).number)
    long = submit(place, api, run="for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.3; done; exit 0", gpus={"count": 4})
    running(api, long)
    other = node_of(api, long)
    for name in {node, other}:
        place.kill_agent(name)
    time.sleep(1.0)
    for name in {node, other}:
        place.start_agent(name)
    ended = api.jobs.wait(short, timeout_s=20)
    assert (ended.state, ended.outcome.exit_code if ended.outcome else None, ended.attempt) == (JobState.FAILED, 7, 1)
    assert text(api, short) == "begin\nend\n"
    ended = api.jobs.wait(long, timeout_s=20)
    assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 1)
    assert text(api, long) == "".join(f"line {i}\n" for i in range(1, 9))


def test_a_killed_supervisor_costs_the_attempt_and_the_job_runs_again(place: Installation, api: Api) -> None:
    number = submit(place, api, run='[ "$SHOAL_ATTEMPT" = 2 ] || { setsid sleep 300 & sleep 300; }; echo second')
    running(api, number)
    eventually(lambda: len(marked(TASK_MARK, place.mark)) >= 3, 10, "the task's daemon")
    pid = Link(str(place.state_dir / "nodes" / node_of(api, number) / "supervisor")).greet().pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not marked(TASK_MARK, place.mark), 10, "the guardian to end the work")
    ended = api.jobs.wait(number, timeout_s=30)
    assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 2)
    assert text(api, number) == "second\n"


def test_work_ends_by_itself_when_everybody_else_is_dead(place: Installation, api: Api) -> None:
    """Server and agent are killed: the supervisor alone stops the work at the end of the lease (2 s here)."""
    number = submit(place, api, run="sleep 300", on_disconnect={"stop_after": "1s"}, retry={"limit": 0})
    running(api, number)
    node = node_of(api, number)
    place.kill_server()
    place.kill_agent(node)
    began = time.monotonic()
    eventually(lambda: not marked(TASK_MARK, place.mark), 8, "the supervisor to stop the work")
    assert time.monotonic() - began > 1
    place.start_server()
    place.start_agent(node)
    job = api.jobs.get(number).job
    assert job.state is not JobState.SUCCEEDED
    api.jobs.cancel(number, mode=CancelMode.FORCE)
    assert api.jobs.wait(number, timeout_s=20).state is JobState.CANCELLED


def test_output_is_neither_lost_nor_doubled_while_server_and_agents_are_killed(place: Installation, api: Api) -> None:
    script = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); [ $((i % 10)) = 0 ] && sleep 0.05; done; true"
    number = submit(place, api, run=script)
    got: list[bytes] = []
    follower = threading.Thread(target=lambda: got.extend(piece.data for piece in api.logs.follow(number)), daemon=True)
    running(api, number)
    follower.start()
    node = node_of(api, number)
    place.kill_server()
    place.start_server()
    place.kill_agent(node)
    place.start_agent(node)
    assert api.jobs.wait(number, timeout_s=30).state is JobState.SUCCEEDED
    follower.join(20)
    want = "".join(f"line {i}\n" for i in range(400))
    assert b"".join(got).decode() == want
    assert text(api, number) == want


# --- cancels --------------------------------------------------------------------------------------------------------------
def test_cancel_leaves_nothing_that_forked_twice_with_setsid(place: Installation, api: Api) -> None:
    """Platform case 19."""
    number = submit(place, api, run="setsid sh -c 'setsid sleep 300 & sleep 300' & sleep 300")
    running(api, number)
    eventually(lambda: len(marked(TASK_MARK, place.mark)) >= 4, 10, "its daemons")
    api.jobs.cancel(number)
    assert api.jobs.wait(number, timeout_s=20).state is JobState.CANCELLED
    assert marked(TASK_MARK, place.mark) == []


def test_force_is_quick_also_after_a_patient_cancel(place: Installation, api: Api) -> None:
    """Platform case 16: the process ignores TERM and the grace is an hour."""
    number = submit(place, api, run="trap '' TERM; echo ready; while :; do sleep 0.1; done", stop={"grace": "1h"})
    running(api, number)
    eventually(lambda: "ready" in text(api, number), 10, "its trap")
    api.jobs.cancel(number)
    time.sleep(0.5)
    assert api.jobs.get(number).job.state is JobState.CANCELLING
    began = time.monotonic()
    api.jobs.cancel(number, mode=CancelMode.FORCE)
    assert api.jobs.wait(number, timeout_s=20).state is JobState.CANCELLED
    assert time.monotonic() - began < 5


# --- what a task finds ----------------------------------------------------------------------------------------------------
GREET = """#!/usr/bin/env python3
import os, socket
if os.environ["RANK"] == "0":
    listener = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    print(listener.accept()[0].recv(100).decode())
else:
    for _ in range(200):
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            break
        except ConnectionRefusedError:
            import time; time.sleep(0.05)
    peer.sendall(f"hello from {os.environ['SLURM_NODEID']} of {os.environ['SLURM_JOB_NODELIST']}".encode())
"""


def test_the_nodes_of_a_gang_meet_at_the_port_that_was_held_for_them(place: Installation, api: Api) -> None:
    number = submit(place, api, run=GREET, nodes=2, gpus={"count": 2})
    assert api.jobs.wait(number, timeout_s=30).state is JobState.SUCCEEDED
    assert text(api, number) == "hello from 1 of n[1-2]\n"


def test_files_secrets_and_setup_are_there_before_the_tasks(place: Installation, api: Api, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "work.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo("src/main.sh")
        data = b'cat made; cat "$SHOAL_SECRETS/token"; cat "$SHOAL_HOSTFILE"; pwd\n'
        entry.size, entry.mode = len(data), 0o755
        archive.addfile(entry, io.BytesIO(data))
    blob = api.blobs.put_file(tmp_path / "work.tgz")
    api.secrets.set("hf", b"s3cret\n")
    number = submit(
        place,
        api,
        run=["/bin/sh", "src/main.sh"],
        setup="echo setting up; echo made > made",
        workdir={"blob": blob},
        secrets={"token": "hf"},
    )
    ended = api.jobs.wait(number, timeout_s=20)
    assert ended.state is JobState.SUCCEEDED, (ended.reason, text(api, number))
    *lines, pwd = text(api, number).splitlines()
    assert lines == ["made", "s3cret", "127.0.0.1 slots=1"]
    assert text(api, number, -1) == "setting up\n"
    eventually(lambda: not Path(pwd).exists(), 10, "the private directory to go")


@pytest.mark.parametrize("data", [b"no archive at all", b""])
def test_a_damaged_archive_fails_the_job_with_a_reason(place: Installation, api: Api, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.tgz").write_bytes(data)
    blob = api.blobs.put_file(tmp_path / "bad.tgz")
    ended = api.jobs.wait(submit(place, api, run="true", workdir={"blob": blob}), timeout_s=20)
    assert ended.state is JobState.FAILED
    assert ended.reason is not None
    assert "archive of the job's files cannot be read" in ended.reason.message


def test_a_failed_setup_fails_the_job_and_starts_no_task(place: Installation, api: Api) -> None:
    number = submit(place, api, setup="echo broken; exit 9", run="echo never")
    ended = api.jobs.wait(number, timeout_s=20)
    assert (ended.state, ended.outcome.exit_code if ended.outcome else None) == (JobState.FAILED, 9)
    assert text(api, number, -1) == "broken\n"
    assert [log.rank for log in api.logs.tasks(number)] == [-1]


@pytest.mark.service("root")
def test_root_runs_a_job_as_its_user_in_a_private_directory(place: Installation, api: Api) -> None:
    number = submit(place, api, user="nobody", run='id -un; stat -c "%a %U" . ..; echo x > "$TMPDIR/f"; echo again > /dev/stdout')
    ended = api.jobs.wait(number, timeout_s=20)
    assert ended.state is JobState.SUCCEEDED, (ended.reason, text(api, number))
    assert text(api, number) == "nobody\n700 nobody\n700 nobody\nagain\n"


def test_a_user_that_no_node_knows_is_told(place: Installation, api: Api) -> None:
    number = submit(place, api, user="nosuchuser", run="true")

    def told() -> bool:
        reason = api.jobs.get(number).job.reason
        return reason is not None and "nosuchuser" in reason.message

    eventually(told, 15, "the reason to be told")
    api.jobs.cancel(number, mode=CancelMode.FORCE)
    assert api.jobs.wait(number, timeout_s=20).state is JobState.CANCELLED


# --- terminals ------------------------------------------------------------------------------------------------------------
def talk(api: Api, number: int, request: ExecRequest, typed: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command beside a job."""
    streams: dict[ExecStream, bytes] = {ExecStream.STDOUT: b"", ExecStream.STDERR: b""}
    with api.terminals.open(number, request) as terminal:
        if typed:
            terminal.send(ExecStream.STDIN, typed)
        if not request.tty:
            terminal.end_stdin()
        for stream, data in terminal.messages():
            if stream is ExecStream.EXIT:
                return read_exit(data).exit_code, streams[ExecStream.STDOUT], streams[ExecStream.STDERR]
            streams[stream] += data
    raise AssertionError("no exit was told")


def test_exec_runs_beside_the_task_with_its_environment(place: Installation, api: Api) -> None:
    number = submit(place, api, run="echo here > file; sleep 60")
    running(api, number)
    eventually(lambda: talk(api, number, ExecRequest(command=("test", "-s", "file")))[0] == 0, 10, "the task to write")
    request = ExecRequest(command=("sh", "-c", "cat file; cat; echo $RANK $MORE >&2; exit 5"), env={"MORE": "more"})
    assert talk(api, number, request, b"typed\n") == (5, b"here\ntyped\n", b"0 more\n")
    code, out, _ = talk(api, number, ExecRequest(command=("sh", "-c", "stty size; tty"), tty=True, rows=33, columns=99))
    assert (code, out.split(b"\r\n")[0]) == (0, b"33 99")
    assert talk(api, number, ExecRequest(command=("no-such-program",)))[0] == 126
    api.jobs.cancel(number)
    api.jobs.wait(number, timeout_s=20)


def test_an_interactive_job_waits_at_its_terminal_across_a_killed_agent(place: Installation, api: Api) -> None:
    number = submit(place, api, interactive=True, run=["sh", "-c", "while read x; do echo got-$x; done; exit 3"])
    running(api, number)
    node = node_of(api, number)
    with api.terminals.open(number, ExecRequest(tty=True)) as terminal:
        terminal.send(ExecStream.STDIN, b"one\n")
        seen = b""
        for stream, data in terminal.messages():
            seen += data if stream is ExecStream.STDOUT else b""
            if b"got-one" in seen:
                break
    place.kill_agent(node)
    (place.state_dir / "nodes" / node / "ready").unlink()
    place.start_agent(node)
    eventually(lambda: (place.state_dir / "nodes" / node / "ready").exists(), 20, "the agent to be back")
    api.terminals.open(number, ExecRequest(command=("true",))).close()  # the killed agent's last poll may still be open and swallow a call
    code, out, _ = talk(api, number, ExecRequest(tty=True), b"two\n\x04")
    assert code == 3
    assert b"got-one" in out
    assert b"got-two" in out
    assert api.jobs.wait(number, timeout_s=20).state is JobState.FAILED


# --- installations --------------------------------------------------------------------------------------------------------
def test_an_agent_serves_the_next_installation_at_the_address_of_the_last(tmp_path: Path) -> None:
    """Each installation numbers its commands from the start: the count of the last one must not make the new one's look old."""
    place = Installation(tmp_path, f"anew-{os.getpid()}", nodes=1)
    try:
        place.start()
        for _ in range(3):
            place.api().jobs.wait(place.api().jobs.submit({"run": "true"}).number, timeout_s=20)
        place.kill_server()
        for entry in place.state_dir.iterdir():
            if entry.name != "nodes":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        place.start_server()
        fresh = Api(place.url, (place.state_dir / "admin.token").read_text().strip())
        number = fresh.jobs.submit({"run": "true"}).number
        assert fresh.jobs.wait(number, timeout_s=30).state is JobState.SUCCEEDED
    finally:
        place.stop()
