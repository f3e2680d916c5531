"""A user's way through the command line, over a real plane of two nodes with eight pretended GPUs each: real processes, real exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from command_line import answer, shoal, start, variables
from shoal.base.errors import Unavailable
from shoal.client.settings import find_settings
from shoal.client.submissions import Submissions
from shoal.formats.jobfile import read_job
from shoal.model.codec import decode_json, encode_json
from shoal.model.job import Job
from shoal.model.wire import Explanation, JobPage, JobView, NodeView, QueueView, SecretView, TokenView

WAIT_S = 60.0


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of a plane that is up."""
    state = tmp_path_factory.mktemp("plane") / "state"
    began = start(state, "up", "--nodes", "2", "--pretend", "h100:8", "--port", "0")
    told = began.communicate(timeout=90)
    assert began.returncode == 0, told
    yield state
    ended = start(state, "down", "--grace", "1s")
    told = ended.communicate(timeout=90)
    assert ended.returncode == 0, told


def number(state: Path, *arguments: str) -> str:
    """The number of a job that is submitted by `shoal run --detach`."""
    result = shoal(state, "run", "--detach", *arguments)
    assert result.exit_code == 0, result.output
    found = re.match(r"job (\d+) ", result.stdout)
    assert found is not None
    return found[1]


def await_state(state: Path, job: str, *wanted: str) -> dict[str, Any]:
    until = time.monotonic() + WAIT_S
    while True:
        view: dict[str, Any] = answer(state, "status", job)
        if view["job"]["state"] in wanted:
            return view
        assert time.monotonic() < until, f"job {job} is {view['job']['state']}, not one of {wanted}"
        time.sleep(0.05)


# --- run ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("script", "want"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("no-such-command-anywhere", 127)]
)
def test_run_prints_what_the_command_prints_and_ends_as_it_ends(state: Path, script: str, want: int) -> None:
    process = start(state, "run", "--", "sh", "-c", f"echo to stdout; echo to stderr >&2; {script}")
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == want
    assert out.startswith("to stdout\nto stderr\n")
    assert ("ended FAILED" in err) is (want != 0)


def test_a_gang_marks_lines_with_ranks_and_ends_with_the_first_failing_task(state: Path) -> None:
    script = 'echo "hello from $RANK of $WORLD_SIZE"; [ "$RANK" = 2 ] && exit 5; sleep 30'
    process = start(state, "run", "-N", "2", "--tasks-per-node", "2", "--gpus", "h100:4", "--", "sh", "-c", script)
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 5
    assert sorted(line for line in out.splitlines() if "hello" in line) == [f"[{rank}] hello from {rank} of 4" for rank in range(4)]


def test_ctrl_c_cancels_and_a_second_one_leaves(state: Path) -> None:
    process = start(state, "run", "--", "sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    found = re.search(r"cancelling job (\d+); Ctrl-C again leaves it", err)
    assert found is not None
    assert f"job {found[1]} is left to itself" in err
    assert answer(state, "status", found[1])["job"]["state"] == "CANCELLING"
    assert shoal(state, "cancel", found[1], "--force").exit_code == 0
    assert await_state(state, found[1], "CANCELLED")["job"]["cancel_reason"] == "Ctrl-C"


def test_environment_and_files_travel_with_the_job(state: Path, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "say.sh").write_text("#!/bin/sh\necho said $1 $GREETING\n")
    (tmp_path / "pkg" / "say.sh").chmod(0o755)
    (tmp_path / "secret.txt").write_text("stays")
    (tmp_path / ".shoalignore").write_text("*.txt\n")
    arguments = ("run", "--workdir", str(tmp_path), "--env", "GREETING=hi there", "--", "sh", "-c", "pkg/say.sh 1; ls")
    process = start(state, *arguments)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert out == "said 1 hi there\npkg\n"


class Typist:
    """A person at a terminal of their own: types, and waits for what appears."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            command = [sys.executable, "-m", "shoal.cli.main", *arguments]
            os.execve(sys.executable, command, variables(state, TERM="xterm", PS1="READY> "))
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def await_text(self, text: str) -> None:
        """Reads on until `text` has appeared after what was waited for before."""
        until = time.monotonic() + WAIT_S
        while text.encode() not in self.seen:
            assert time.monotonic() < until, f"waited for {text!r}, saw {self.seen!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.handle, 4096)
                except OSError:
                    raise AssertionError(f"the terminal ended; saw {self.seen!r}") from None
        self.seen = self.seen.partition(text.encode())[2]

    def exit_code(self) -> int:
        while True:
            try:
                if not os.read(self.handle, 4096):
                    break
            except OSError:
                break
        os.close(self.handle)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_an_interactive_job_has_this_terminal(state: Path) -> None:
    person = Typist(state, "run", "--pty", "--gpus", "1", "--", "sh")
    person.await_text("# " if os.geteuid() == 0 else "$ ")
    person.type("test -t 0 && echo $((40 + 2)) $(tty)\n")
    person.await_text("42 /dev/pts/")
    person.type("sleep 60\n")
    time.sleep(0.5)
    person.type("\x03")
    person.type("echo still $((1 + 1)) here\n")
    person.await_text("still 2 here")
    person.type("exit 9\n")
    assert person.exit_code() == 9


def test_an_interactive_command_that_ends_at_once_is_heard(state: Path) -> None:
    process = start(state, "run", "--pty", "--", "sh", "-c", "echo said in passing; exit 3")
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out.split()) == (3, ["said", "in", "passing"])
    assert "ended FAILED" in err


@pytest.mark.parametrize("how", [(), ("--pty",)])
def test_who_follows_a_job_that_waits_is_told_for_what(state: Path, how: tuple[str, ...]) -> None:
    process = start(state, "run", *how, "--gpus", "a100:1", "--", "true")
    assert process.stderr is not None
    told = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert re.match(r"job \d+ is QUEUED: .*asks for a100, and the fleet has h100", told), told


def test_exec_runs_beside_a_task_with_its_environment_streams_and_exit_code(state: Path) -> None:
    job = number(state, "--gpus", "2", "--", "sleep", "60")
    await_state(state, job, "RUNNING")
    script = 'cat; echo "err $SHOAL_JOB_NUMBER" >&2; exit 5'
    process = start(state, "exec", job, "-T", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    out, err = process.communicate("typed\n", timeout=WAIT_S)
    assert (process.returncode, out, err) == (5, "typed\n", f"err {job}\n")
    assert shoal(state, "cancel", job).exit_code == 0
    await_state(state, job, "CANCELLED")
    refused = shoal(state, "exec", job, "--", "true")
    assert refused.exit_code == 1
    assert f"job {job} does not run" in refused.stderr


# --- submit, wait, get ----------------------------------------------------------------------------------------------------
def test_submit_follow_and_get_back_a_file(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: roundtrip\nrun: |\n  echo $A-$B\nenv: {A: 0800, B: no}\ngpus: h100:1\ntime: 5m\nlabels: {team: nlp}\n")
    process = start(state, "submit", str(path), "-f", "--set", "priority=3")
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    first, second = out.splitlines()
    found = re.fullmatch(r"job (\d+) \(roundtrip\) submitted to queue default: 1 h100", first)
    assert found is not None
    assert second == "0800-no"
    for form in ("yaml", "json"):
        text = shoal(state, "get", found[1], "-o", form).stdout
        again = shoal(state, "submit", "-", "--quiet", stdin=text)
        assert again.exit_code == 0, again.output
        assert answer(state, "status", again.stdout.strip())["job"]["spec"] == answer(state, "status", found[1])["job"]["spec"]
    assert read_job(shoal(state, "get", found[1]).stdout, "get")[0].priority == 3


def test_wait_ends_with_the_highest_code_of_an_array(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "array.yaml"
    path.write_text("name: sweep\nrun: echo element $SHOAL_ARRAY_INDEX; exit $((SHOAL_ARRAY_INDEX % 4))\narray: 0-5%3\n")
    job = shoal(state, "submit", str(path), "-q").stdout.strip()
    process = start(state, "wait", job)
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 3
    assert out.startswith(f"job {job} ended FAILED")
    elements = answer(state, "jobs", "--array", job)["items"]
    assert [element["array"]["index"] for element in elements] == [5, 4, 3, 2, 1, 0]
    assert start(state, "wait", f"{job}_2").wait(WAIT_S) == 2
    assert shoal(state, "logs", f"{job}_2").stdout == "element 2\n"
    assert f"for example {job}_0" in shoal(state, "logs", job).stderr
    assert shoal(state, "logs", "-f", job).exit_code == 2


def test_a_job_whose_submit_was_repeated_is_waited_for_with_its_own_code_each_time(state: Path, tmp_path: Path) -> None:
    """Platform case 29: the answer to the first submit is lost; the second finds the job, and its failure stays a failure."""
    path = tmp_path / "job.yaml"
    path.write_text("name: once\nrun: exit 7\n")
    api = find_settings({}, state_dir=state).api()
    body = encode_json(read_job(path.read_bytes(), "job.yaml")[0])
    kept = Submissions(state / "submissions")
    with suppress(Unavailable), kept.begin(body, key="lost", url=api.url, project=api.project, now_ms=time.time_ns() // 1_000_000):
        first, _ = api.jobs.submit_body(body, key="lost")
        raise Unavailable("the answer was lost")
    again = shoal(state, "submit", str(path), "--quiet")
    assert (again.exit_code, again.stdout.strip()) == (0, str(first.number)), again.output
    assert [start(state, "wait", str(first.number)).wait(WAIT_S) for _ in range(2)] == [7, 7]
    assert len([job for job in answer(state, "jobs", "--all")["items"] if job["spec"]["name"] == "once"]) == 1


def test_wait_gives_up_after_its_time(state: Path) -> None:
    job = number(state, "--", "sleep", "60")
    assert start(state, "wait", job, "--timeout", "300ms").wait(WAIT_S) == 124
    shoal(state, "cancel", job)
    assert start(state, "wait", job).wait(WAIT_S) == 143


def test_several_jobs_of_a_file_are_waited_for_together(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("run: exit 2\n---\nrun: exit 6\n")
    process = start(state, "submit", str(path), "--wait")
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 6
    assert out.count("submitted to queue default") == 2


def test_dry_run_and_must_fit_create_nothing(state: Path) -> None:
    before = answer(state, "jobs", "--all")["items"]
    good = shoal(state, "submit", "-", "--dry-run", stdin="run: true\ngpus: h100:8\nnodes: 99\n")
    assert (good.exit_code, good.stdout) == (0, "job: good, would go to queue default\n")
    refused = shoal(state, "submit", "-", "--must-fit", stdin="run: true\ngpus: h100:8\nnodes: 99\n")
    assert refused.exit_code == 1
    assert "could never hold" in refused.stderr
    assert answer(state, "jobs", "--all")["items"] == before


# --- looking --------------------------------------------------------------------------------------------------------------
def test_why_names_what_is_missing_and_cancel_ends_the_wait(state: Path) -> None:
    job = number(state, "--gpus", "h100:8", "--nodes", "3", "--", "true")
    text = shoal(state, "why", job).stdout
    assert f"Job {job} is QUEUED" in text
    assert "h100" in text
    assert len(text.splitlines()) <= 24
    why = answer(state, "why", job)
    assert why["reasons"]
    assert why["state"] == "QUEUED"
    assert f"job {job} is cancelled" in shoal(state, "cancel", job).stdout
    assert f"job {job} is cancelled" in shoal(state, "cancel", job).stdout


def test_hold_release_update_and_requeue(state: Path) -> None:
    job = number(state, "--gpus", "h100:8", "--nodes", "3", "--", "true")
    assert f"job {job} is HELD" in shoal(state, "hold", job, "-r", "not yet").stdout
    assert answer(state, "jobs", "--state", "held")["items"][0]["number"] == int(job)
    assert f"job {job} is QUEUED" in shoal(state, "release", job).stdout
    assert f"job {job}: priority 7, time limit 2h, queue default" in shoal(state, "update", job, "--priority", "7", "--time", "2h").stdout
    assert answer(state, "update", job, "--priority", "8")["priority"] == 8
    shoal(state, "cancel", job)
    refused = shoal(state, "update", job, "--priority", "9")
    assert refused.exit_code == 1
    assert "CANCELLED" in refused.stderr
    running = number(state, "--", "sleep", "60")
    await_state(state, running, "RUNNING")
    assert f"job {running} goes back to queue default" in shoal(state, "requeue", running).stdout
    until = time.monotonic() + WAIT_S
    while answer(state, "status", running)["job"]["attempt"] < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    shoal(state, "cancel", running, "--force")


def test_logs_of_tasks_by_tail_offset_and_attempt(state: Path) -> None:
    job = number(state, "--tasks-per-node", "2", "--", "sh", "-c", "for i in 1 2 3; do echo $RANK line $i; done; printf end")
    assert start(state, "wait", job).wait(WAIT_S) == 0
    assert shoal(state, "logs", f"{job}/1").stdout == "1 line 1\n1 line 2\n1 line 3\nend"
    both = "".join(f"[{rank}] {text}\n" for rank in (0, 1) for text in [*(f"{rank} line {i}" for i in (1, 2, 3)), "end"])
    assert shoal(state, "logs", job).stdout == both
    assert shoal(state, "logs", f"{job}/0", "--tail", "2").stdout == "0 line 3\nend"
    assert shoal(state, "logs", f"{job}/0", "--since-offset", "18").stdout == "0 line 3\nend"
    assert "has written nothing in attempt 4" in shoal(state, "logs", job, "--attempt", "4").stderr
    record = json.loads(shoal(state, "logs", f"{job}/1", "--json").stdout)
    assert record == {"task": 1, "attempt": 1, "offset": 0, "text": "1 line 1\n1 line 2\n1 line 3\nend"}
    for last, want in (("1", "end"), ("4", "0 line 1\n0 line 2\n0 line 3\nend"), ("99", "0 line 1\n0 line 2\n0 line 3\nend"), ("0", "")):
        assert shoal(state, "logs", f"{job}/0", "--tail", last).stdout == want
        assert start(state, "logs", "-f", f"{job}/0", "--tail", last).communicate(timeout=WAIT_S)[0] == want
    refused = shoal(state, "logs", "-f", job, "--json")
    assert refused.exit_code == 2
    assert f"name it, for example {job}/0" in refused.stderr
    followed = start(state, "logs", "-f", f"{job}/1")
    assert followed.communicate(timeout=WAIT_S)[0] == "1 line 1\n1 line 2\n1 line 3\nend"


def test_the_tail_of_a_long_log_is_found_from_its_end(state: Path) -> None:
    job = number(state, "--", "sh", "-c", "seq 1 60000")
    assert start(state, "wait", job).wait(WAIT_S) == 0
    assert shoal(state, "logs", job, "--tail", "3").stdout == "59998\n59999\n60000\n"
    assert shoal(state, "logs", job, "--tail", "50000").stdout.startswith("10001\n10002\n")
    assert len(shoal(state, "logs", job).stdout.splitlines()) == 60_000
    assert len(shoal(state, "logs", "-f", job).stdout.splitlines()) == 60_000


def test_a_follower_whose_reader_goes_ends_quietly(state: Path) -> None:
    job = number(state, "--", "sh", "-c", "while :; do echo again; sleep 0.05; done")
    follower = start(state, "logs", "-f", job)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "again\n"
    follower.stdout.close()
    assert follower.wait(WAIT_S) == 0
    assert follower.stderr is not None
    assert follower.stderr.read() == ""
    shoal(state, "cancel", job, "--force")


def test_selectors_ask_first_and_cancel_what_they_name(state: Path) -> None:
    jobs = [number(state, "--gpus", "h100:8", "--nodes", "3", "--", "true") for _ in range(3)]
    asked = shoal(state, "cancel", "--state", "queued")
    assert asked.exit_code == 2
    assert "Nobody can be asked here: add --yes" in asked.stderr
    done = shoal(state, "cancel", "--state", "queued", "--mine", "--yes")
    assert sorted(re.findall(r"job (\d+) is cancelled", done.stdout), key=int) == jobs
    assert "no such jobs" in shoal(state, "cancel", "--state", "queued", "--yes").stderr


def test_nodes_are_drained_and_resumed(state: Path) -> None:
    assert [view["node"]["id"] for view in answer(state, "nodes")] == ["n1", "n2"]
    assert "node n1 is DRAINING" in shoal(state, "drain", "n1", "-r", "new fans").stdout
    text = shoal(state, "nodes").stdout
    assert "DRAINING" in text
    assert "new fans" in text
    assert "new fans" in shoal(state, "nodes", "show", "n1").stdout
    assert "node n1 is READY" in shoal(state, "resume", "n1").stdout
    unknown = shoal(state, "drain", "n9")
    assert unknown.exit_code == 3
    assert "n9" in unknown.stderr


def test_queues_are_set_shown_and_deleted(state: Path) -> None:
    made = shoal(state, "queues", "set", "lab", "--gpu", "h100=4", "--cpu", "64", "--memory", "1TiB", "--weight", "2")
    assert made.stdout == "queue lab is made\n"
    assert shoal(state, "queues", "set", "lab", "--borrow", "gpu/h100=8", "--order", "strict").stdout == "queue lab is changed\n"
    spec = next(view for view in answer(state, "queues") if view["name"] == "lab")["spec"]
    assert spec["quotas"]["gpu/h100"] == {"nominal": 4_000, "borrowing_limit": 8_000}
    assert spec["quotas"]["memory"]["nominal"] == 1 << 40
    assert (spec["weight"], spec["order"]) == (2_000, "strict")
    assert "0/4, may borrow 8" in shoal(state, "queues").stdout
    assert shoal(state, "queues", "delete", "lab", "--yes").exit_code == 0
    assert shoal(state, "queues", "delete", "lab", "--yes").exit_code == 3
    path = shoal(state, "queues", "set", "lab/vision", "--gpu", "1")
    assert (path.exit_code, path.stdout) == (2, "")
    assert "shoal queues set vision --parent lab" in path.stderr


def test_a_schedule_is_made_of_a_job_file_paused_resumed_shown_and_deleted(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("name: nightly\nrun: 'true'\n")
    assert "no schedules" in shoal(state, "schedules").stderr
    made = shoal(state, "submit", str(file), "--cron", "30 2 * * mon-fri", "--time-zone", "Europe/Berlin", "--overlap", "replace")
    assert made.exit_code == 0, made.stderr
    assert made.stdout.startswith("schedule nightly: next ")
    (found,) = answer(state, "schedules")
    assert (found["spec"]["cron"], found["spec"]["overlap"], found["spec"]["job"]["name"]) == ("30 2 * * mon-fri", "replace", "nightly")
    assert "Europe/Berlin" in shoal(state, "schedules").stdout
    assert shoal(state, "schedules", "pause", "nightly").stdout == "schedule nightly: paused\n"
    assert "paused" in shoal(state, "schedule", "show", "nightly").stdout
    assert shoal(state, "schedules", "resume", "nightly").stdout.startswith("schedule nightly: next ")
    bad = shoal(state, "submit", str(file), "--cron", "30 25 * * *")
    assert (bad.exit_code != 0, "hour '25': a number from 0 to 23" in bad.stderr) == (True, True)
    assert shoal(state, "schedules", "delete", "nightly", "--yes").stdout == "schedule nightly is deleted\n"
    assert shoal(state, "schedules", "show", "nightly").exit_code == 3


def test_reservations_are_made_shown_kept_to_and_deleted(state: Path) -> None:
    assert "no reservations" in shoal(state, "reservations").stderr
    asked = ("--start", "+1h", "--duration", "2h", "-r", "new firmware")
    made = shoal(state, "reservations", "create", "firmware", "--pool", "default", *asked)
    assert made.exit_code == 0, made.stderr
    assert made.stdout.startswith("reservation firmware has ")
    (view,) = answer(state, "reservations")
    assert (view["spec"]["pool"], view["spec"]["reason"]) == ("default", "new firmware")
    assert view["next_end_ms"] - view["next_start_ms"] == 7_200_000
    twice = shoal(state, "reservations", "create", "again", "--pool", "default", "--start", "+2h", "--duration", "2h")
    assert (twice.exit_code != 0, "reservation 'firmware' has" in twice.stderr) == (True, True)
    assert "new firmware" in shoal(state, "nodes").stdout
    assert "pool default" in shoal(state, "reservation", "show", "firmware").stdout
    assert shoal(state, "reservations", "delete", "firmware", "--yes").stdout == "reservation firmware is deleted\n"
    assert shoal(state, "reservations", "show", "firmware").exit_code == 3


def test_events_tell_what_happened_in_order(state: Path) -> None:
    job = number(state, "--", "true")
    assert start(state, "wait", job).wait(WAIT_S) == 0
    lines = shoal(state, "events", "--job", job).stdout.splitlines()
    told = [line.partition(f"job {job}  ")[2] for line in lines]
    assert told[0].startswith(f"submitted as {job} (true)")
    assert told[-1].startswith("ended SUCCEEDED, exit 0")
    rows = [json.loads(line) for line in shoal(state, "events", "--job", job, "--json").stdout.splitlines()]
    assert [row["version"] for row in rows] == sorted(row["version"] for row in rows)
    after = [
        json.loads(line) for line in shoal(state, "events", "--job", job, "--after", str(rows[0]["version"]), "--json").stdout.splitlines()
    ]
    assert after == rows[1:]
    assert len(shoal(state, "events", "-n", "2").stdout.splitlines()) == 2


def test_a_token_whose_jobs_would_run_as_the_agents_user_is_made_with_a_word_on_it(state: Path) -> None:
    said = shoal(state, "token", "create", "user/bo", "--role", "member").stderr
    assert "its jobs run as the user of each node's agent" in said
    for quiet in (("--role", "member", "--unix-user", "bo"), ("--role", "viewer"), ("--role", "join")):
        assert "its jobs run" not in shoal(state, "token", "create", "user/bo", *quiet).stderr


def test_a_list_that_is_empty_for_its_filter_does_not_say_that_nothing_runs(state: Path) -> None:
    assert shoal(state, "jobs", "--owner", "user/nobody").stderr.startswith("no such job waits or runs;")
    assert shoal(state, "jobs", "--array", "999999").stderr == "no such jobs\n"


def test_tokens_and_secrets_tell_no_more_than_they_should(state: Path) -> None:
    made = shoal(state, "token", "create", "user/anna", "--role", "viewer", "--life", "1d", "-q")
    token = made.stdout.strip()
    looking = start(state, "--url", answer_url(state), "jobs", "-a", "--json")
    looking.communicate(timeout=WAIT_S)
    process = subprocess.run(
        [sys.executable, "-m", "shoal.cli.main", "run", "-d", "true"],
        env=variables(state, SHOAL_TOKEN=token),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 4
    assert "viewer" in process.stderr
    listed = shoal(state, "token", "list").stdout
    assert "user/anna" in listed
    assert token not in listed
    token_id = next(view["id"] for view in answer(state, "token", "list") if view["principal"] == "user/anna")
    assert shoal(state, "token", "revoke", token_id).exit_code == 0
    assert shoal(state, "secret", "set", "KEY", stdin="hush\n").stdout == "secret KEY is set in project default\n"
    ran = start(state, "submit", "-", "-f", stdin=subprocess.PIPE)
    out, _ = ran.communicate("run: cat $SHOAL_SECRETS/KEY\nsecrets: [KEY]\n", timeout=WAIT_S)
    assert out.endswith("hush")
    assert "hush" not in shoal(state, "secret", "list").stdout
    assert shoal(state, "secret", "rm", "KEY", "--yes").exit_code == 0


def answer_url(state: Path) -> str:
    return (state / "url").read_text().strip()


def test_what_is_not_there_ends_with_3(state: Path) -> None:
    for arguments in (("status", "999999"), ("why", "999999"), ("logs", "999999"), ("cancel", "999999"), ("nodes", "show", "x")):
        result = shoal(state, *arguments)
        assert result.exit_code == 3, arguments
        assert arguments[-1] in result.stderr


def test_jobs_nodes_and_queues_complete(state: Path) -> None:
    job = number(state, "--", "true")
    for words, wanted in (
        (f"shoal status {job[:1]}", job),
        ("shoal drain n", "n1"),
        ("shoal jobs --queue d", "default"),
        ("shoal que", "queues"),
    ):
        parts = words.split(" ")
        environment = variables(state, _SHOAL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(parts) - 1))
        done = subprocess.run(
            [sys.executable, "-c", "from shoal.cli.main import main; main()"], env=environment, capture_output=True, text=True, check=True
        )
        assert f"plain,{wanted}" in done.stdout.splitlines(), done


def test_answers_are_the_records_that_help_names(state: Path) -> None:
    job = number(state, "--", "true")
    assert shoal(state, "secret", "set", "SHAPE", stdin="x").exit_code == 0
    for arguments, record in (
        (("jobs", "-a"), JobPage),
        (("status", job), JobView),
        (("get", job), JobView),
        (("why", job), Explanation),
        (("nodes",), tuple[NodeView, ...]),
        (("nodes", "show", "n1"), NodeView),
        (("queues",), tuple[QueueView, ...]),
        (("token", "list"), tuple[TokenView, ...]),
        (("secret", "list"), tuple[SecretView, ...]),
        (("wait", job), Job),
        (("cancel", job), Job),
        (("run", "true"), Job),
    ):
        result = shoal(state, *arguments, "--json") if arguments[0] != "run" else shoal(state, "run", "--json", "true")
        assert result.exit_code == 0, (arguments, result.output)
        assert decode_json(result.stdout, record)  # type: ignore[arg-type]
        assert result.stderr == ""
