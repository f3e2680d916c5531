"""
Preemption over real processes: who is stopped for another saves first and loses nothing, whoever is killed meanwhile.

Told in steps: a victim runs on all GPUs of the one node; somebody with a higher priority asks for them; the victim is signalled, says
that it has saved, is stopped, and goes on from there when the other has ended. Each step of its work is a line in a file: one that is
there twice was lost. The other looks for the victim's process when it starts: GPUs go on to it only when that is gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installation import Installation, eventually, marked

from shoal.model.job import CancelMode, Job, JobState

TASK_MARK = "PREEMPTION_TEST_MARK"
STEPS = 60
SAVES = f"""
echo $$ > "$OUT/pid"
n=$(cat "$OUT/saved" 2>/dev/null || echo 0)
echo "from $n"
trap 'asked=1' USR1
while [ $n -lt {STEPS} ]; do
    if [ -n "$asked" ]; then
        sleep "$SAVING"
        echo $n > "$OUT/saved"
        touch "$SHOAL_CHECKPOINT"
        while :; do sleep 0.05; done
    fi
    n=$((n + 1))
    echo $n >> "$OUT/steps"
    sleep 0.05
done
"""
"""Works in steps, saves when it is asked and then does nothing any more, so that no step is done twice."""

DEAF = """
trap '' USR1 TERM
echo $$ > "$OUT/pid"
while :; do sleep 0.1; done
"""
TAKES_OVER = 'if kill -0 "$(cat "$OUT/pid")" 2>/dev/null; then echo clash; exit 3; fi; sleep 0.3'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path, f"{tmp_path.name}-{os.getpid()}", nodes=1)
    try:
        installation.start()
        yield installation
        eventually(lambda: not marked(TASK_MARK, installation.mark), 20, "tasks to be gone")
    finally:
        installation.stop()
        for pid in marked(TASK_MARK, installation.mark):
            os.kill(pid, signal.SIGKILL)


def submit(place: Installation, **spec: object) -> int:
    env = {TASK_MARK: place.mark, "OUT": str(place.directory), "SAVING": "1", **spec.pop("env", {})}  # type: ignore[dict-item]
    return place.api().jobs.submit({"name": "test", "env": env, "gpus": 4, **spec}).number


def a_victim(place: Installation, **spec: object) -> int:
    """A job that runs on everything and has begun its work."""
    victim = submit(place, **{"run": SAVES, "checkpoint": {"signal": "USR1", "takes": "30s"}, **spec})
    eventually((place.directory / "pid").exists, 20, "the victim to work")
    eventually(lambda: job_of(place, victim).state is JobState.RUNNING, 20, "the victim to run")
    time.sleep(0.3)
    return victim


def job_of(place: Installation, number: int) -> Job:
    return place.api().jobs.get(number).job


def preempting(place: Installation, number: int) -> None:
    eventually(lambda: job_of(place, number).state is JobState.PREEMPTING, 20, "the victim to be told")


def steps(place: Installation) -> list[int]:
    return [int(line) for line in (place.directory / "steps").read_text().split()]


def nothing_was_lost(place: Installation, victim: int) -> None:
    """It started twice, and did each step once."""
    ended = place.api().jobs.wait(victim, timeout_s=40)
    assert (ended.state, ended.attempt, ended.retries) == (JobState.SUCCEEDED, 2, 0)
    assert steps(place) == list(range(1, STEPS + 1))
    assert ended.checkpointed_ms is not None


def test_a_job_that_saves_at_the_signal_loses_nothing(place: Installation) -> None:
    victim = a_victim(place)
    before_ms = job_of(place, victim).started_ms or 0
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    why = place.api().jobs.why(urgent)
    assert f"{victim} may save first" in why.headline
    assert place.api().jobs.wait(urgent, timeout_s=30).state is JobState.SUCCEEDED
    waiting = job_of(place, victim)
    assert waiting.checkpointed_ms is not None
    assert waiting.checkpointed_ms > before_ms
    nothing_was_lost(place, victim)


def test_one_that_ignores_every_signal_is_stopped_after_its_time_and_its_grace(place: Installation) -> None:
    victim = a_victim(place, run=DEAF, checkpoint={"signal": "USR1", "takes": "2s"}, stop={"grace": "2s"})
    asked = time.monotonic()
    urgent = submit(place, run=TAKES_OVER, priority=10)
    assert place.api().jobs.wait(urgent, timeout_s=30).state is JobState.SUCCEEDED, "the victim was gone when it started"
    assert time.monotonic() - asked > 4
    place.api().jobs.cancel(victim, mode=CancelMode.FORCE)
    place.api().jobs.wait(victim, timeout_s=20)


def kill_server(place: Installation) -> None:
    place.kill_server()
    place.start_server()


def kill_agent(place: Installation) -> None:
    place.kill_agent("n1")
    place.start_agent("n1")


def kill_both(place: Installation) -> None:
    place.kill_server()
    place.kill_agent("n1")
    place.start_server()
    place.start_agent("n1")


@pytest.mark.parametrize("kill", [kill_server, kill_agent, kill_both])
def test_a_kill_while_the_victim_saves_loses_nothing(place: Installation, kill: Callable[[Installation], None]) -> None:
    victim = a_victim(place, env={"SAVING": "3"})
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    kill(place)
    assert place.api().jobs.wait(urgent, timeout_s=40).state is JobState.SUCCEEDED
    nothing_was_lost(place, victim)


def test_two_kills_of_the_server_in_one_preemption_lose_nothing(place: Installation) -> None:
    """The second when the stop has been sent, to a victim that takes its time to go."""
    victim = a_victim(
        place, env={"SAVING": "1"}, run=SAVES.replace("trap 'asked=1' USR1", "trap 'asked=1' USR1; trap '' TERM"), stop={"grace": "4s"}
    )
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    kill_server(place)
    eventually(lambda: job_of(place, victim).checkpointed_ms is not None, 20, "the checkpoint to be known")
    kill_server(place)
    assert place.api().jobs.wait(urgent, timeout_s=40).state is JobState.SUCCEEDED
    nothing_was_lost(place, victim)


def test_a_victim_that_is_cancelled_while_it_saves_is_not_waited_for(place: Installation) -> None:
    victim = a_victim(place, env={"SAVING": "25"})
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    place.api().jobs.cancel(victim)
    assert place.api().jobs.wait(urgent, timeout_s=15).state is JobState.SUCCEEDED
    assert job_of(place, victim).state is JobState.CANCELLED


def test_when_the_preemptor_is_cancelled_meanwhile_the_victim_goes_on_from_where_it_was(place: Installation) -> None:
    victim = a_victim(place, env={"SAVING": "2"})
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    place.api().jobs.cancel(urgent)
    nothing_was_lost(place, victim)


def test_a_victim_that_ends_by_itself_while_its_next_checkpoint_is_waited_for_has_succeeded(place: Installation) -> None:
    waited = {"checkpoint": {"every": "10s"}, "stop": {"grace": "20s"}}
    victim = a_victim(place, run='echo $$ > "$OUT/pid"; sleep 3', **waited)
    urgent = submit(place, run=TAKES_OVER, priority=10)
    preempting(place, victim)
    assert place.api().jobs.wait(urgent, timeout_s=20).state is JobState.SUCCEEDED
    ended = job_of(place, victim)
    assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 1)


def test_one_that_saves_at_the_stop_itself_is_known_to_have_saved(place: Installation) -> None:
    """No rule in its job file: it catches TERM, saves, says so and goes; that is told before its end is."""
    on_term = 'trap \'touch "$SHOAL_CHECKPOINT"; exit 0\' TERM; echo $$ > "$OUT/pid"; while :; do sleep 0.1; done'
    victim = a_victim(place, run=on_term, checkpoint=None)
    asked_ms = time.time_ns() // 1_000_000
    urgent = submit(place, run=TAKES_OVER, priority=10)
    assert place.api().jobs.wait(urgent, timeout_s=20).state is JobState.SUCCEEDED
    assert (job_of(place, victim).checkpointed_ms or 0) >= asked_ms - 100
    place.api().jobs.cancel(victim, mode=CancelMode.FORCE)
    place.api().jobs.wait(victim, timeout_s=20)
