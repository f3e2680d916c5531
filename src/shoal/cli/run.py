"""`shoal run`: a command as a job, followed to its end, as if it ran here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from shoal.base.errors import Invalid
from shoal.cli.exits import INTERRUPTED
from shoal.cli.options import command, json_option, queue_option
from shoal.cli.session import Session, leave, leave_unread, open_session

if TYPE_CHECKING:
    from shoal.model.job import Job

FLAG = "command line"
"""What errors of flags name as their source."""
_NAMES = ("queue", "pool")
"""Flags that stay text also where it looks like a number."""


@command(
    "run",
    "shoal run nvidia-smi",
    "shoal run --nodes 2 --gpus h100:8 --time 2h -- torchrun train.py --lr 3e-4",
    "shoal run --gpus 1 --workdir . python train.py",
    "shoal run --pty --gpus 1 bash",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--nodes", "-N", metavar="COUNT", help="Nodes: 4, or 2..4 to let Shoal choose at start.")
@click.option("--gpus", "-G", metavar="ASK", help="GPUs per node: 8, h100:8, h100.")
@click.option("--tasks-per-node", type=int, metavar="COUNT", help="Processes per node, 1 by default.")
@click.option("--cpus", "-c", type=int, metavar="COUNT", help="CPUs per node.")
@click.option("--memory", "-m", metavar="SIZE", help="Memory per node, for example 64GiB.")
@click.option("--pool", metavar="NAME", help="Pool whose nodes it wants; any by default.")
@click.option("--time", "-t", metavar="LENGTH", help="Time limit, for example 2h30m.")
@queue_option
@click.option("--priority", type=int, metavar="NUMBER", help="Higher goes first in its queue.")
@click.option("--name", metavar="TEXT", help="Name of the job; the command's by default.")
@click.option("--env", "-e", multiple=True, metavar="NAME[=VALUE]", help="Environment variable; without =VALUE the one of this shell.")
@click.option("--workdir", metavar="DIR", help="Files that travel with the job and are its working directory.")
@click.option("--must-fit", is_flag=True, help="Refuse what today's nodes could never hold.")
@click.option("--detach", "-d", is_flag=True, help="Do not follow; print the job and end.")
@click.option("--pty", is_flag=True, help="Give the command a terminal and connect this one to it.")
@json_option("the Job, ended (or as created, with --detach), in place of its output")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(must_fit: bool, detach: bool, pty: bool, as_json: bool, **asked: Any) -> None:
    """
    Run a command as a job, print what it writes, and end with its exit code.

    Ctrl-C cancels the job; a second Ctrl-C leaves it to itself. With several tasks, each line begins with its task's rank.
    """
    from shoal.cli.outcome import exit_code_of
    from shoal.cli.submitting import create

    session = open_session(as_json)
    if pty and (detach or as_json):
        raise Invalid("--pty connects this terminal to the job, which goes with neither --detach nor --json")
    job_file = _job_file(asked, interactive=pty)
    job, _ = create(session, job_file, must_fit=must_fit)
    if detach:
        session.row(job, f"job {job.address} ({job.spec.name}) submitted to queue {job.queue}")
        return
    if as_json:
        ended = session.api.jobs.wait(job.id)
        session.row(ended, "")
        leave(exit_code_of(ended))
    if pty:
        from shoal.cli.terminal import attach

        leave(attach(session, job))
    leave(follow_to_end(session, job))


def _job_file(asked: dict[str, Any], *, interactive: bool) -> Any:
    """The job that the flags describe, read by the same rules as a file. Faults name the flags."""
    from shoal.cli.submitting import faults_of
    from shoal.formats.jobfile import JobFile, decode_spec

    words = asked.pop("words")
    env = dict(_variable(text) for text in asked.pop("env"))
    name = asked.pop("name") or os.path.basename(words[0])[:128] or "run"
    raw = {key: value if key in _NAMES else _plain(value) for key, value in asked.items() if value is not None}
    raw |= {"name": name, "run": list(words), **({"env": env} if env else {}), **({"interactive": True} if interactive else {})}
    with faults_of(FLAG):
        return JobFile(decode_spec(raw), FLAG)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if name not in os.environ:
        raise Invalid(f"--env {name}: this shell has no such variable; give it a value with --env {name}=VALUE")
    return name, os.environ[name]


def follow_to_end(session: Session, job: Job) -> int:
    """The job's exit code, after all its output. Ctrl-C cancels it, a second one leaves it."""
    from shoal.cli.follow import follow_job
    from shoal.cli.outcome import end_line, exit_code_of
    from shoal.model.job import JobState

    follower = follow_job(session.api, job, session.look)
    interrupted = False
    while True:
        try:
            ended = follower.to_end()
            break
        except BrokenPipeError:
            leave_unread()
        except KeyboardInterrupt:
            if interrupted:
                session.note(f"\njob {job.address} is left to itself; `shoal logs -f {job.address}` follows it again")
                return INTERRUPTED
            interrupted = True
            session.note(f"\ncancelling job {job.address}; Ctrl-C again leaves it to itself")
            session.api.jobs.cancel(job.id, reason="Ctrl-C")
    if ended.state is not JobState.SUCCEEDED:
        session.note(end_line(ended))
    return exit_code_of(ended)
