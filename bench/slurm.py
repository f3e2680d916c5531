"""
A real Slurm on this machine, for comparison: munged, slurmctld and several slurmd as processes of our own in one directory.

Used by `bench/e2e.py`; needs the programs of Debian's `slurmctld`, `slurmd`, `slurm-client` and `munge`, none of their services.
Tuned as Slurm's high-throughput guide says: no accounting, no job completion log, no process tracking beyond what every Linux has,
builtin scheduler, no task plugin, quiet logs. Of the scheduling parameters those were kept that gave the best figure here, about 50
jobs/s on two cores, which are then busy: `defer` gave 30, since only a loop of one second places jobs then; `batch_sched_delay` must be 0
(its default of 3 s gave 10); `sched_min_interval` between 1 and 100 ms makes no difference, 0 gave 37. Backfill gave 42.
Several slurmd on one host need a `NodeName` with `NodeHostname` and `Port` each, and `config_overrides`, as the host has fewer cores
than the nodes claim.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo")
CONFIG = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/%n.log
SlurmctldDebug=error
SlurmdDebug=error
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PriorityType=priority/basic
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,default_queue_depth=40
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=60
MinJobAge=600
MaxJobCount=20000
MaxArraySize=4001
GresTypes=gpu
NodeName=DEFAULT CPUs=32 Sockets=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=100000 Gres=gpu:{gpus} State=UNKNOWN
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10
POLL_SECONDS = 0.1
UNFINISHED = "PENDING,CONFIGURING,RUNNING,COMPLETING"


def missing_programs() -> tuple[str, ...]:
    """Names of what a real Slurm needs and this machine lacks."""
    return tuple(name for name in PROGRAMS if _find(name) is None)


def _find(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held open until the last is chosen, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


class SlurmCluster:
    """A running Slurm of `nodes` nodes with `gpus` pretended GPUs each; `with` starts it and stops every process of it."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self._nodes = [f"n{i + 1}" for i in range(nodes)]
        self._gpus = gpus
        self.running: list[subprocess.Popen[bytes]] = []
        self.root = Path()
        self._completed = 0

    def __enter__(self) -> SlurmCluster:
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.root.chmod(0o755)
        try:
            self._write_files()
            self._start("munged", "--foreground", "--force", *self._munge_files())
            self._await(lambda: (self.root / "munge.socket").exists(), "munged's socket")
            self._start("slurmctld", "-D", "-c")
            for node in self._nodes:
                self._start("slurmd", "-D", "-N", node)
            self._await(lambda: self._count_idle() == len(self._nodes), f"{len(self._nodes)} idle nodes")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def run_singly(self, jobs: int, shells: int) -> float:
        """Seconds from the first of `jobs` sbatch calls, made by `shells` shells at once, to the last recorded end."""
        each, rest = divmod(jobs, shells)
        started = time.monotonic()
        loops = [
            subprocess.Popen(["/bin/sh", "-c", self._loop_of(each + (shell < rest))], env=self._environment()) for shell in range(shells)
        ]
        for loop in loops:
            if loop.wait() != 0:
                raise RuntimeError("sbatch failed")
        return self._finish(jobs, started)

    def run_array(self, jobs: int) -> float:
        """Seconds from the submission of one array of `jobs` elements to the last recorded end."""
        started = time.monotonic()
        self._call(*self._sbatch(f"--array=1-{jobs}"))
        return self._finish(jobs, started)

    def _finish(self, jobs: int, started: float) -> float:
        while self._call("squeue", "-h", "-t", UNFINISHED, "-o", "%i").strip():
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - started
        done = self._call("squeue", "-h", "-r", "-t", "COMPLETED", "-o", "%i").split()
        if len(done) - self._completed != jobs:
            raise RuntimeError(f"Slurm completed {len(done) - self._completed} of {jobs} jobs; see {self.root}")
        self._completed = len(done)
        return seconds

    def _sbatch(self, *more: str) -> tuple[str, ...]:
        return ("sbatch", "-Q", "-n1", "--gres=gpu:1", "-o", "/dev/null", *more, str(self.root / "noop.sh"))

    def _loop_of(self, count: int) -> str:
        return f"i=0; while [ $i -lt {count} ]; do {' '.join(self._sbatch())} >/dev/null || exit 1; i=$((i+1)); done"

    def _write_files(self) -> None:
        root, ports = self.root, _free_ports(1 + len(self._nodes))
        for part in ("state", *(f"spool/{node}" for node in self._nodes)):
            (root / part).mkdir(parents=True)
        key = root / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for i in range(self._gpus):
            (root / f"gpu{i}").touch()
        (root / "gres.conf").write_text(f"NodeName={','.join(self._nodes)} Name=gpu File={root}/gpu[0-{self._gpus - 1}]\n")
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}" for node, port in zip(self._nodes, ports[1:], strict=True)
        )
        values = {"host": host, "ports": ports, "user": getpass.getuser(), "root": root, "gpus": self._gpus, "nodes": nodes}
        (root / "slurm.conf").write_text(CONFIG.format(**values))
        script = root / "noop.sh"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o755)

    def _munge_files(self) -> tuple[str, ...]:
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "seed"}
        return tuple(f"--{option}={self.root / name}" for option, name in files.items())

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.root / "slurm.conf")}

    def _start(self, program: str, *arguments: str) -> None:
        with (self.root / "starts.log").open("ab") as log:
            found = _find(program)
            if found is None:
                raise RuntimeError(f"{program} is not installed")
            command = [found, *arguments]
            self.running.append(subprocess.Popen(command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _call(self, *command: str) -> str:
        return subprocess.run(command, env=self._environment(), check=True, stdout=subprocess.PIPE, text=True).stdout

    def _count_idle(self) -> int:
        command = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
        answer = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False).stdout.strip()
        return int(answer) if answer.isdigit() else 0

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        by = time.monotonic() + START_SECONDS_MAX
        while not holds():
            if time.monotonic() > by:
                raise RuntimeError(f"no {what} within {START_SECONDS_MAX} s: {(self.root / 'starts.log').read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)

    def _stop(self) -> None:
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
        by = time.monotonic() + STOP_SECONDS_MAX
        for process in reversed(self.running):
            try:
                process.wait(max(0.0, by - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()
        shutil.rmtree(self.root, ignore_errors=True)


if __name__ == "__main__":
    with SlurmCluster(nodes=4, gpus=8) as cluster:
        for _ in range(2):
            print(f"singly {400 / cluster.run_singly(400, shells=4):.1f} jobs/s, array {400 / cluster.run_array(400):.1f} jobs/s")
