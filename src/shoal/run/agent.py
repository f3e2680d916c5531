"""
The agent of one node as a process. Started by `shoal up` and `shoal join`, or by a service manager:

    python -m shoal.run.agent --url URL --state-dir DIR [--name NAME] [--pretend h100:8] [--pool POOL] [--topology rack=r1] [--label k=v]

The first start needs a join token ($SHOAL_JOIN_TOKEN or --join-token-file); later ones have the node's own. SIGTERM ends the agent and
leaves its tasks running: the next start takes them up. `--end-work` ends what runs on the node, and needs no running agent.
Ready when `ready` is in the state directory.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal import __version__
from shoal.agent.control import Pauses
from shoal.agent.course import Course
from shoal.agent.engine import Engine, prepare_in
from shoal.agent.exec import ExecServer
from shoal.agent.holds import HoldJournal
from shoal.agent.home import Home, leave_home, lock_home, make_home
from shoal.agent.keeper import Keeper
from shoal.agent.lease import Lease
from shoal.agent.mail import Mail
from shoal.agent.messages import Message
from shoal.agent.outbox import Outbox
from shoal.agent.poller import Poller
from shoal.agent.probe import machine
from shoal.agent.probe.pretended import PretendedProbe, parse_pretend
from shoal.agent.probe.protocol import NoProbe, Probe
from shoal.agent.runtimes.host import HostRuntime
from shoal.agent.session import Identity, Session, join_plane, read_identity
from shoal.agent.uploader import Uploader
from shoal.agent.use import Meter
from shoal.agent.workers import Workers
from shoal.base.errors import Refused, ShoalError, Unavailable
from shoal.base.rng import Rng
from shoal.client.api import Api
from shoal.formats.partition import FORMS, partition_of
from shoal.model.node import NodeFacts
from shoal.model.part import Partition
from shoal.model.wire import Join, LeaseTerms
from shoal.run.clock import RealClock
from shoal.run.entropy import seed
from shoal.run.log_lines import start_logging

log = logging.getLogger("shoal.run")

START_S_MAX = 60.0
END_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    url: str
    name: str
    state_dir: Path
    work_dir: Path | None = None
    pretend: str | None = None
    parts: str = "whole"
    pool: str = "default"
    topology: tuple[tuple[str, str], ...] = ()
    labels: dict[str, str]
    address: str | None = None
    isolation: str = "auto"
    join_token_file: Path | None = None
    ca_file: str | None = None
    log_level: str = "info"
    log_file: Path | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """0 after a clean end, 1 where it cannot start, 2 for options that cannot be."""
    given = sys.argv[1:] if argv is None else list(argv)
    if "--end-work" in given:
        return _end_work(given)
    options = read_options(given)
    try:
        start_logging(options.log_level, options.log_file)
        run_agent(options)
    except ShoalError as error:
        sys.stderr.write(f"shoal agent: {error.message}\n")
        return 1
    return 0


def read_options(argv: Sequence[str]) -> Options:
    """The options of a command line; a mistake ends the process with code 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m shoal.run.agent", description="The agent of one node.")
    parser.add_argument("--url", required=True, help="the server")
    parser.add_argument("--state-dir", type=Path, required=True, help="the node's own directory")
    parser.add_argument("--name", default=machine.hostname(), help="the node's name; by default the host's")
    parser.add_argument("--work-dir", type=Path, help="where jobs' private directories go; by default in the state directory")
    parser.add_argument("--pretend", help="pretended GPUs instead of real ones, for example h100:8")
    parser.add_argument("--parts", default="whole", metavar="HOW", help=f"how real GPUs may be given in parts: {FORMS}")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--topology", action="append", default=[], metavar="LEVEL=NAME", help="from the widest level inwards")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--address", help="where other nodes reach this one; by default the address that leads to the server")
    parser.add_argument("--isolation", default="auto", choices=["auto", "cgroup2", "cgroup1", "weak"])
    parser.add_argument("--join-token-file", type=Path, help="by default $SHOAL_JOIN_TOKEN")
    parser.add_argument("--ca-file", default=os.environ.get("SHOAL_CA_FILE"), help="certificate of the server, PEM")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-file", type=Path, help="by default standard error")
    parser.add_argument("--end-work", action="store_true", help="end what runs on the node, with its supervisor, and do nothing else")
    given = vars(parser.parse_args(argv))
    del given["end_work"]
    try:
        given["topology"], given["labels"] = _pairs(given["topology"]), dict(_pairs(given.pop("label")))
        if given["pretend"]:
            parse_pretend(given["pretend"])
        partition_of(given["parts"])
    except ValueError as error:
        parser.error(str(error))
    return Options(**given)


def _pairs(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`k=v` texts as pairs. Raises ValueError."""
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ValueError(f"{text!r}: give it as KEY=VALUE, for example rack=r1")
        pairs.append((key, value))
    return tuple(pairs)


def _join_token(options: Options) -> str:
    """Raises Unavailable for a file that is not there yet, Refused where there is no token to be had."""
    if options.join_token_file is None:
        token = os.environ.get("SHOAL_JOIN_TOKEN", "").strip()
    else:
        try:
            token = options.join_token_file.read_text().strip()
        except OSError as error:
            raise Unavailable(f"{options.join_token_file}: {error.strerror}") from error
    if not token:
        raise Refused(f"node {options.name} has not joined yet: give a join token in $SHOAL_JOIN_TOKEN or by --join-token-file")
    return token


def _end_work(given: list[str]) -> int:
    from shoal.agent.ending import end_work

    parser = argparse.ArgumentParser(prog="python -m shoal.run.agent --end-work")
    parser.add_argument("--end-work", action="store_true")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--within", type=float, default=10.0, help="seconds; jobs are killed after half of them")
    parser.add_argument("--force", action="store_true", help="kill at once")
    options = parser.parse_args(given)
    left = end_work(options.state_dir, options.within, force=options.force)
    for allocation in left:
        sys.stderr.write(f"shoal agent: {allocation} still has processes\n")
    return 1 if left else 0


# --- composing --------------------------------------------------------------------------------------------------------------
class Agent:
    """All parts of one agent, tied together; `start` after the node has joined."""

    def __init__(self, options: Options, home: Home) -> None:
        self.options = options
        self.home = home
        self.clock = RealClock()
        self.rng = Rng(seed())
        self.boot_id = machine.boot_id()
        self.api = Api(options.url, patience_s=0, ca_file=options.ca_file)
        self.address = options.address or machine.address_towards(options.url)
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.workers = Workers()
        self.mail = Mail(home, Outbox(home.outbox))
        self.keeper = Keeper(home, options.name, options.isolation, self.inbox.put)
        self.probe = self._probe()
        self.meter = Meter(self.probe, self.clock)
        self.runtime = HostRuntime(home, self.api.agent, dict(os.environ))
        self.course = self._course()
        self.lease = Lease(self.clock)
        self.engine = Engine(self.course, self.keeper, home, self.boot_id, self.lease, self.inbox)
        self.threads: list[threading.Thread] = []

    def _probe(self) -> Probe:
        if self.options.pretend:
            return PretendedProbe(self.options.name, self.options.pretend, self.clock, self._pids_on)
        return real_probe(partition_of(self.options.parts))

    def _pids_on(self, uuid: str) -> tuple[int, ...]:
        """Processes of whoever holds a pretended device."""
        return tuple(pid for allocation in self.course.devices.holders(uuid) for pid in self.meter.pids(allocation))

    def _course(self) -> Course:
        return Course(
            journal=HoldJournal(self.home.holds),
            mail=self.mail,
            runtime=self.runtime,
            probe=self.probe,
            meter=self.meter,
            clock=self.clock,
            rng=self.rng.stream("ports"),
            address=self.address,
            prepare_aside=prepare_in(self.workers.submit, self.inbox, self.runtime.prepare),
            aside=self.workers.submit,
        )

    def facts(self) -> NodeFacts:
        """What the machine is, as of now."""
        greeting = self.keeper.greeting
        return NodeFacts(
            hostname=machine.hostname(),
            address=self.address,
            cpus=machine.cpu_count(),
            memory_bytes=machine.memory_bytes(),
            devices=self.probe.devices(),
            nics=machine.nics(),
            boot_id=self.boot_id,
            kernel=machine.kernel(),
            driver=self.probe.driver(),
            isolation=greeting.isolation if greeting is not None else "weak",  # type: ignore[arg-type]
            as_root=os.geteuid() == 0,
            pretended=self.probe.pretended,
            agent_version=__version__,
        )

    def start_engine(self) -> None:
        """Work that is there already goes on before any server is reached. Raises Unavailable when that does not come about."""
        self._run(self.engine.run, "engine")
        if not self.engine.ready.wait(START_S_MAX):
            raise Unavailable(f"the agent could not take up its work within {START_S_MAX:.0f} s; see its log")

    def identity(self, ended: threading.Event) -> Identity | None:
        """Who we are: from an earlier join, or by joining now, tried until it works. None if told to end before that."""
        known = read_identity(self.home.identity)
        if known is not None:
            return known
        pauses = Pauses(self.rng.stream("join"))
        while not ended.is_set():
            try:
                return self.join()
            except Unavailable as error:
                log.warning("cannot join yet: %s", error.message)
                ended.wait(pauses.next_s())
        return None

    def join(self) -> Identity:
        options = self.options
        token = _join_token(options)
        held = self.engine.held()
        if held:
            raise Refused(f"{len(held)} allocations of the earlier installation are still held, for example {held[0].allocation}")
        self.api.transport.token = token
        join = Join(name=options.name, facts=self.facts(), pool=options.pool, topology=options.topology, labels=options.labels)
        identity = join_plane(self.home, self.api.agent, join, options.url)
        self.engine.begin_anew()
        return identity

    def start(self, identity: Identity) -> tuple[Uploader, Poller, Session]:
        """The loops towards the control plane."""
        self.api.transport.token = identity.token
        session = Session(
            control=self.api.agent,
            identity=identity,
            facts=self.facts,
            held=self.engine.held,
            post=self.inbox.put,
            renewed=self.keeper.feed,
            learned=self._learned,
            clock=self.clock,
            lease=self.lease,
        )
        uploader = Uploader(
            session=session,
            mail=self.mail,
            meter=self.meter,
            probe=self.probe,
            clock=self.clock,
            boot_id=self.boot_id,
            pauses=Pauses(self.rng.stream("upload")),
            holds=lambda: tuple(self.course.holds.values()),
            post=self.inbox.put,
            rejoin=lambda: self._rejoin(session),
        )
        execs = ExecServer(self.keeper.directory, self.runtime, self.api.terminals.serve, self.course.holds.get)
        poller = Poller(
            session=session,
            pauses=Pauses(self.rng.stream("poll")),
            taken=lambda: self.engine.taken,
            post=self.inbox.put,
            serve=execs.start,
        )
        self._run(uploader.run, "uploader")
        self._run(poller.run, "poller")
        return uploader, poller, session

    def _learned(self, terms: LeaseTerms) -> None:
        self.course.terms = terms

    def _rejoin(self, session: Session) -> None:
        """The node was removed, or its token does not hold any more: joins anew where that is allowed and nothing is held."""
        try:
            session.identity = self.join()
            self.api.transport.token = session.identity.token
        except ShoalError as error:
            log.error("cannot join anew: %s", error.message)
            self.api.transport.token = session.identity.token

    def _run(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self.threads.append(thread)


def real_probe(parts: Partition) -> Probe:
    """The GPUs of this machine by NVML, to be given in these parts; none where there is no driver."""
    if not os.path.exists("/proc/driver/nvidia/version"):
        return NoProbe()  # saves loading the library on machines without one
    from shoal.agent.probe.nvml import NvmlFailed, NvmlProbe, command_from_proc, numa_from_sysfs
    from shoal.agent.probe.nvml_library import NvmlLibrary

    try:
        return NvmlProbe(NvmlLibrary(), numa_from_sysfs, command_from_proc, parts)
    except NvmlFailed as failure:
        log.error("an NVIDIA driver is loaded, but NVML does not answer: %s", failure)
        return NoProbe()


def run_agent(options: Options) -> None:
    """Until SIGTERM or SIGINT. Raises errors of `base.errors` where it cannot start."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    home = make_home(options.state_dir, options.work_dir)
    lock = lock_home(home)
    ready = home.root / "ready"
    ready.unlink(missing_ok=True)
    agent = Agent(options, home)
    agent.start_engine()
    identity = agent.identity(ended)
    if identity is not None:
        uploader, poller, session = agent.start(identity)
        while not ended.is_set() and not session.registered.wait(0.1):
            pass
        if not ended.is_set():
            ready.write_text(f"{os.getpid()}\n")
            log.info("agent ready", extra={"node": identity.node, "pid": os.getpid()})
        ended.wait()
        poller.stop()
        uploader.stop()
    agent.engine.stop()
    for thread in agent.threads:
        if thread.name != "poller":
            thread.join(END_S_MAX)
    ready.unlink(missing_ok=True)
    leave_supervisor(agent)
    if not agent.course.holds:
        agent.runtime.sweep(set(), logs_needed=False)
        leave_home(options.state_dir)
    os.close(lock)
    log.info("agent ended; what runs on the node goes on")


def leave_supervisor(agent: Agent) -> None:
    """A supervisor that holds nothing ends with its agent."""
    from shoal.agent.supervisor.wire import Quit

    try:
        agent.keeper.give(Quit())
    except Unavailable:
        log.info("the supervisor has ended already")


if __name__ == "__main__":
    sys.exit(main())
