"""
`make demo`: a first look at Shoal on two pretended nodes, with real processes. Types what a user would type and shows what comes.

Everything lies in a temporary directory. Ends with 0 only if every command did what is told here and nothing is left running;
`--stay` leaves it up instead, and says how to go on.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOAL = Path(sys.executable).with_name("shoal")
COMMAND_SECONDS_MAX = 60
ENDING_SECONDS_MAX = 10
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "", "")


class NotAsToldError(Exception):
    """A command did something else than the demo says."""


class Screen:
    """Types commands, shows what they say, and holds them to what was promised."""

    def __init__(self, state: Path) -> None:
        self._environment = {**os.environ, "SHOAL_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1"}
        for name in ("SHOAL_URL", "SHOAL_TOKEN", "SHOAL_PROJECT"):
            self._environment.pop(name, None)
        self._step = 0

    def tell(self, title: str, text: str) -> None:
        """The next chapter: what we are going to see."""
        self._step += 1
        print(f"\n{BOLD}{self._step}. {title}{PLAIN}")
        print(textwrap.indent(textwrap.fill(text, 96), "   ") + "\n", flush=True)

    def ask(self, line: str) -> Any:
        """What a command says as records, without showing it: to look closer than a reader would."""
        command = [str(SHOAL), *shlex.split(line), "--json"]
        return json.loads(
            subprocess.run(command, env=self._environment, capture_output=True, check=True, timeout=COMMAND_SECONDS_MAX).stdout
        )

    def await_running(self, job: str) -> None:
        """Returns once the job runs; not shown, since a person's hands would be slow enough."""
        by = time.monotonic() + COMMAND_SECONDS_MAX
        while self.ask(f"status {job}")["job"]["state"] != "RUNNING":
            if time.monotonic() > by:
                raise NotAsToldError(f"job {job} does not run after {COMMAND_SECONDS_MAX} s")
            time.sleep(0.1)

    def type(self, line: str, *, says: tuple[str, ...] = (), code: int = 0) -> str:
        """
        Runs a command line of `shoal` and shows it with its output as it comes.

        Raises: NotAsToldError when it ends with another code than `code`, or its output lacks one of `says`.
        """
        print(f"   {BOLD}$ shoal {line}{PLAIN}", flush=True)
        said = []
        with subprocess.Popen(
            [SHOAL, *shlex.split(line)],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            assert running.stdout is not None
            for out in running.stdout:
                said.append(out)
                print(f"   {out}", end="", flush=True)
            ended = running.wait(COMMAND_SECONDS_MAX)
        print(flush=True)
        whole = "".join(said)
        missing = [text for text in says if text not in whole]
        if ended != code:
            raise NotAsToldError(f"`shoal {line}` ended with {ended}, not {code}")
        if missing:
            raise NotAsToldError(f"`shoal {line}` did not say: {', '.join(missing)}")
        return whole


def show(screen: Screen) -> None:
    """The chapters between up and down."""
    screen.type("nodes", says=("n1", "n2", "h100"))

    screen.tell(
        "A gang: one job, two nodes, four GPUs on each",
        "Eight processes train one network on handwritten digits. They start together or not at all, find each other by MASTER_ADDR and "
        "RANK as torchrun would set them, and average their gradients over a ring of TCP connections.",
    )
    screen.type("submit examples/digits/train.yaml --follow", says=("test accuracy", "weights are the same on all 8 ranks"))

    screen.tell(
        "A job that cannot fit, and why",
        "Four nodes of eight GPUs are asked for; there are two. It is no error: the job waits, and Shoal says for what, with numbers.",
    )
    screen.type("submit examples/too-big.yaml", says=("job 2",))
    screen.type("why 2", says=("h100",))

    screen.tell("An array", "One job per index, at most two at once. The big job in front does not hold them up.")
    screen.type("submit examples/array.yaml --wait", says=("job 3",))
    screen.type("logs 3_1", says=("element 1 tries rate 0.03",))

    screen.tell(
        "Cancel",
        "What waits is gone at once. What runs is asked first; this one does not listen and hides a child, so after its grace of a second "
        "all that it started is killed. Only then its GPUs are free again.",
    )
    number = screen.type("submit examples/stubborn.yaml --quiet").split()[-1]
    screen.await_running(number)
    screen.type(f'cancel 2 {number} --yes --reason "seen enough"')
    screen.type(f"wait {number}", code=137)
    screen.type("jobs --all", says=("SUCCEEDED", "CANCELLED"))
    screen.type("nodes")
    taken = [device["uuid"] for node in screen.ask("nodes") for device in node["devices"] if device["state"] != "FREE"]
    if taken:
        raise NotAsToldError(f"GPUs are not free although all jobs have ended: {', '.join(taken)}")


def go_on(state: Path) -> None:
    """What to type next, for those who stay."""
    shoal = os.path.relpath(SHOAL, Path.cwd())
    print(f"{BOLD}It stays up.{PLAIN} To go on in this shell:\n")
    print(f"   export SHOAL_STATE_DIR={state}")
    print(f"   alias shoal={shoal}")
    print("   shoal run --gpus 2 -- sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    print("   shoal events")
    print("   shoal down\n")


def left_running(state: Path) -> list[str]:
    """Processes that belong to the state directory, by their command line or environment: servers, agents, supervisors, tasks."""
    mark = str(state).encode()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if mark in (process / "cmdline").read_bytes() or mark in (process / "environ").read_bytes():
                found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
        except OSError:
            continue  # It ended while we looked, or is not ours to read.
    return found


def all_gone(state: Path) -> list[str]:
    """What is still there after a moment's patience: a process that was told to end may take one."""
    by = time.monotonic() + ENDING_SECONDS_MAX
    while (left := left_running(state)) and time.monotonic() < by:
        time.sleep(0.1)
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stay", action="store_true", help="leave it up at the end")
    stay = parser.parse_args().stay
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    folder.chmod(0o711)  # Tasks may run as another user, who must get through to their own directories.
    failure = run(folder / "state", stay=stay)
    if failure:
        print(f"The demo failed: {failure}. Logs are in {folder}/state/processes.", file=sys.stderr)
        return 1
    if not stay:
        shutil.rmtree(folder, ignore_errors=True)
    rest = "" if stay else " Nothing is left running."
    print(
        f"{DIM}All of it was real but the GPUs, and took {time.monotonic() - began:.0f} s.{rest} Next: docs/tutorial/first-gang.md{PLAIN}"
    )
    return 0


def run(state: Path, *, stay: bool) -> str:
    """The whole demo; gives back what went wrong, or nothing. Also after Ctrl-C nothing stays behind that was not asked to."""
    screen = Screen(state)
    done = False
    try:
        screen.tell("Start", "One control plane and two agents on this machine. Each agent pretends eight H100; all else is real.")
        screen.type("up --nodes 2 --pretend h100:8 --port 0")
        show(screen)
        done = True
    except (NotAsToldError, OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        if done and stay:
            go_on(state)
        else:
            screen.tell("Stop", "Agents give back what they hold, then the control plane ends.")
            screen.type("down --grace 2s")
    left = [] if stay else all_gone(state)
    return f"still running: {', '.join(left)}" if left else ""


if __name__ == "__main__":
    sys.exit(main())
