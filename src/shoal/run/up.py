"""
A whole Shoal on this machine: the server and n agents, each a process of its own that outlives who started it.

`bring_up` starts what does not run yet, so that calling it twice is as calling it once; it remembers how it was called, so that a later
start without options brings back the same nodes on the same port. `bring_down` is in `run.down`. Called by the CLI.

Below the state directory: `processes/` (records and logs of the processes, what was asked), `nodes/<name>/` (each agent's own).
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec

from shoal.base.errors import Invalid, Refused, Unavailable
from shoal.run.database import OWN_FILE, keep_database, kept_database, shown
from shoal.run.processes import Process, complaint, find_process, last_words, start_detached

SERVER = "server"
DEFAULT_PORT = 7461
NODES_MAX = 64
"""Agents on one machine: each is a process of 60 MB."""
READY_S = 60.0
"""A start takes a second; a machine under load, or one that has to bring its store up to date, takes longer."""
LOOK_EVERY_S = 0.01
TELL_EVERY_S = 2.0
PRETEND_FORM = "MODEL:COUNT, for example h100:8"
Tell = Callable[[str], None]


class NodeAsked(msgspec.Struct, frozen=True, kw_only=True):
    """
    A node that this machine is to be. `url` and `token_file` are of another machine's Shoal, for `shoal join`.

    `pool`, `topology` (`rack=r1`, from the widest level inwards) and `labels` (`key=value`) are told when the node joins, and not again.
    """

    name: str
    pretend: str | None = None
    url: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    pool: str | None = None
    topology: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    parts: str | None = None
    """How its real GPUs may be given in parts; pretended ones say so themselves."""

    @property
    def place(self) -> tuple[str, ...]:
        """The options that tell the agent where its node stands."""
        pool = ("--pool", self.pool) if self.pool else ()
        levels = (word for level in self.topology for word in ("--topology", level))
        return (*pool, *levels, *(word for label in self.labels for word in ("--label", label)))


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How the plane is to be. None and empty: as the last time, else the default."""

    nodes: int | None = None
    pretend: str | None = None
    parts: str | None = None
    pool: str | None = None
    host: str | None = None
    port: int | None = None
    server_options: tuple[str, ...] = ()
    """Passed on to the server as they are."""
    database: str | None = None
    """Where its state is to be; by default a file in the state directory."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What the last start made, for the next one."""

    nodes: tuple[NodeAsked, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    server_options: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    """Nodes that `shoal down` took out of service, to be given back."""


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What runs now. `started` are the names of what did not run before."""

    url: str
    state_dir: str
    server_pid: int
    nodes: tuple[str, ...]
    started: tuple[str, ...]
    took_ms: int


class Place:
    """The paths of a plane below its state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir.absolute()
        self.processes = self.root / "processes"
        self.url = self.root / "url"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def remembered(self) -> Remembered:
        """What the last start left; the defaults where there was none or where it cannot be read."""
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self.processes / "asked").read_bytes(), type=Remembered)
        return Remembered()

    def remember(self, asked: Remembered) -> None:
        part = self.processes / ".asked"
        part.write_bytes(msgspec.json.encode(asked))
        part.replace(self.processes / "asked")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One start or stop at a time. Raises Refused when another one is at it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.processes.mkdir(exist_ok=True, mode=0o700)
            handle = os.open(self.processes / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Refused(f"state directory {self.root} cannot be used: {error.strerror}; name another with --state-dir") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Refused(f"another `shoal up`, `down` or `join` is at work in {self.root}; try again in a moment") from None
        finally:
            os.close(handle)


def bring_up(state_dir: Path, asked: Asked, tell: Tell) -> Brought:
    """
    The plane, up: its server answers and all its agents have registered. `tell` hears what takes long.

    Raises: Invalid for what cannot be asked; Unavailable with a process's last words when it ends or is not ready in READY_S.
    """
    began = time.monotonic()
    place = Place(state_dir)
    with place.locked():
        before = place.remembered()
        wanted = _as_running(place, before, _wanted(before, asked), tell)
        server = find_process(place.processes, SERVER)
        if asked.database is not None:
            _use_database(place, asked.database, server, tell)
        if server is not None:
            wanted = _as_served(place, before, wanted, tell)
        started: list[Process] = []
        if server is None:
            place.url.unlink(missing_ok=True)
            server = _start_server(place, wanted)
            started.append(server)
        # A server that comes back on its port is found there by agents that start beside it; a new one has yet to say where it is.
        early = wanted.port != 0 and (place.root / "join.token").exists()
        agents = _start_agents(place, wanted, started, url_of(wanted)) if early else []
        _await(lambda: place.url.exists(), [server], "the server", tell)
        url = place.url.read_text(encoding="utf-8").strip()
        if not early:
            agents = _start_agents(place, wanted, started, url)
        for process in agents:
            name = process.name.removeprefix("agent-")
            _await(lambda process=process, name=name: _is_ready(place.node(name), process), [server, process], f"node {name}", tell)  # type: ignore[misc]
        port = int(url.rpartition(":")[2].rstrip("/"))
        place.remember(msgspec.structs.replace(wanted, port=port, cordoned=()))
    _give_back(state_dir, wanted, url)
    return Brought(
        url=url,
        state_dir=str(place.root),
        server_pid=server.pid,
        nodes=tuple(node.name for node in wanted.nodes),
        started=tuple(process.name.removeprefix("agent-") for process in started),
        took_ms=round((time.monotonic() - began) * 1_000),
    )


def bring_up_node(state_dir: Path, node: NodeAsked, tell: Tell) -> bool:
    """This machine, a node of another machine's Shoal: registered there when this returns. False if it was already."""
    place = Place(state_dir)
    if node.pretend is not None:
        _check_pretend(node.pretend)
    if node.parts is not None:
        _check_parts(node.parts, [node])
    with place.locked():
        process = find_process(place.processes, f"agent-{node.name}")
        if process is not None:
            return False
        started: list[Process] = []
        process = _start_agent(place, node, node.url or "", started)
        _await(lambda: _is_ready(place.node(node.name), process), [process], f"node {node.name}", tell)
        before = place.remembered()
        _tell_moved(place, next((other for other in before.nodes if other.name == node.name), None), node, tell)
        others = tuple(other for other in before.nodes if other.name != node.name)
        place.remember(msgspec.structs.replace(before, nodes=(*others, node)))
    return True


# --- what is wanted -------------------------------------------------------------------------------------------------------
def _wanted(before: Remembered, asked: Asked) -> Remembered:
    """What was asked, over what was there before. Raises Invalid for more nodes than can be, and for two that share real GPUs."""
    local = [node for node in before.nodes if node.url is None]
    joined = [node for node in before.nodes if node.url is not None]
    count = asked.nodes if asked.nodes is not None else len(local) or 1
    if not 0 <= count <= NODES_MAX:
        raise Invalid(f"--nodes {count}: between 0 and {NODES_MAX} agents run on one machine")
    alike = local[0].pretend if len({node.pretend for node in local}) == 1 else None
    nodes = local[:count]
    names = {node.name for node in before.nodes}
    fresh = (name for name in (f"n{at}" for at in range(1, NODES_MAX + len(names) + 1)) if name not in names)
    nodes += [NodeAsked(name=name, pretend=alike) for name in islice(fresh, count - len(nodes))]
    if asked.pretend is not None:
        _check_pretend(asked.pretend)
        nodes = [msgspec.structs.replace(node, pretend=asked.pretend) for node in nodes]
    if asked.parts is not None:
        _check_parts(asked.parts, nodes)
        nodes = [msgspec.structs.replace(node, parts=asked.parts) for node in nodes]
    if asked.pool is not None:
        nodes = [msgspec.structs.replace(node, pool=asked.pool) for node in nodes]
    if sum(node.pretend is None for node in nodes) > 1:
        raise Invalid(f"--nodes {count}: several nodes on one machine would offer its GPUs twice; give --pretend {PRETEND_FORM}")
    return msgspec.structs.replace(
        before,
        nodes=(*nodes, *joined),
        host=asked.host or before.host,
        port=before.port if asked.port is None else asked.port,
        server_options=asked.server_options or before.server_options,
    )


def _check_pretend(pretend: str) -> None:
    """Raises Invalid for GPUs that cannot be pretended, before anything is started."""
    from shoal.agent.probe.pretended import parse_pretend

    try:
        parse_pretend(pretend)
    except ValueError as error:
        raise Invalid(f"--pretend {pretend}: {error}") from error


def _check_parts(parts: str, nodes: Sequence[NodeAsked]) -> None:
    """Raises Invalid for a way to give GPUs that there is not, and where the GPUs are pretended."""
    from shoal.formats.partition import partition_of

    try:
        partition_of(parts)
    except ValueError as error:
        raise Invalid(f"--parts {parts}: {error}") from error
    if any(node.pretend is not None for node in nodes):
        raise Invalid(f"--parts is for real GPUs; pretended ones say so themselves: --pretend h100:8+{parts}")


def _as_served(place: Place, before: Remembered, wanted: Remembered, tell: Tell) -> Remembered:
    """`wanted`, but served as the server that runs was told to; says so where something else is wanted."""
    if wanted.host != before.host or wanted.port not in (0, before.port) or wanted.server_options != before.server_options:
        tell(f"the server runs as it was started, at {place.url.read_text(encoding='utf-8').strip()}; `shoal down` first to change that")
    return msgspec.structs.replace(wanted, host=before.host, port=before.port, server_options=before.server_options)


def _as_running(place: Place, before: Remembered, wanted: Remembered, tell: Tell) -> Remembered:
    """`wanted`, but with the nodes that run as they run: `up` starts what is missing and changes nothing that is there."""
    known = {node.name: node for node in before.nodes}
    nodes = []
    for node in wanted.nodes:
        running = known.get(node.name)
        other = running is not None and (running.pretend, running.parts) != (node.pretend, node.parts)
        if running is not None and other and find_process(place.processes, f"agent-{node.name}") is not None:
            given = f", given as {running.parts}" if running.parts else ""
            tell(f"node {node.name} runs with {running.pretend or 'its real GPUs'}{given}; `shoal down` first to change that")
            node = running
        _tell_moved(place, running, node, tell)
        nodes.append(node)
    names = {node.name for node in nodes}
    for node in before.nodes:
        if node.name not in names and find_process(place.processes, f"agent-{node.name}") is not None:
            tell(f"node {node.name} runs, too; `shoal down` stops it")
            nodes.append(node)
    return msgspec.structs.replace(wanted, nodes=tuple(nodes))


def _tell_moved(place: Place, before: NodeAsked | None, node: NodeAsked, tell: Tell) -> None:
    """A node stands where it joined: says so if it is asked to stand elsewhere now."""
    if before is not None and before.place != node.place and (place.node(node.name) / "node.json").exists():
        there = " ".join(before.place) or "in the default pool"
        tell(f"node {node.name} stays as it joined ({there}); `shoal down`, `shoal nodes remove {node.name}`, and it joins anew")


def url_of(wanted: Remembered) -> str:
    """Where agents of this machine find the server on a port that is known."""
    scheme = "https" if "--tls-cert" in wanted.server_options else "http"
    host = "127.0.0.1" if wanted.host in ("0.0.0.0", "::") else f"[{wanted.host}]" if ":" in wanted.host else wanted.host  # noqa: S104
    return f"{scheme}://{host}:{wanted.port}"


def _use_database(place: Place, url: str, server: Process | None, tell: Tell) -> None:
    """The database that the server is to be started with from now on."""
    if server is not None:
        if str(kept_database(place.root)) != url:
            tell("the server runs with the database it was started with; `shoal down` first to change that")
        return
    own = place.root / OWN_FILE
    if own.exists():
        raise Refused(
            f"{own} holds the state of this Shoal: take it along with `shoal db move {own} {shown(url)}`, or name another --state-dir"
        )
    keep_database(place.root, url)


# --- starting -------------------------------------------------------------------------------------------------------------
def _start_server(place: Place, wanted: Remembered) -> Process:
    options = ("--state-dir", str(place.root), "--host", wanted.host, "--port", str(wanted.port), *wanted.server_options)
    return start_detached(place.processes, SERVER, (sys.executable, "-m", "shoal.run.server", *options))


def _start_agents(place: Place, wanted: Remembered, started: list[Process], url: str) -> list[Process]:
    """The processes of all nodes; those that did not run are added to `started`."""
    found: list[Process] = []
    for node in wanted.nodes:
        process = find_process(place.processes, f"agent-{node.name}")
        found.append(process or _start_agent(place, node, node.url or url, started))
    return found


def _start_agent(place: Place, node: NodeAsked, url: str, started: list[Process]) -> Process:
    folder = place.node(node.name)
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    (folder / "ready").unlink(missing_ok=True)
    options = ["--url", url, "--state-dir", str(folder), "--name", node.name]
    options += ["--join-token-file", node.token_file or str(place.root / "join.token")]
    ca_file = node.ca_file or (str(place.root / "ca.pem") if url.startswith("https") and node.url is None else None)
    options += ["--pretend", node.pretend] if node.pretend else []
    options += ["--parts", node.parts] if node.parts and not node.pretend else []
    options += node.place
    options += ["--ca-file", ca_file] if ca_file else []
    process = start_detached(place.processes, f"agent-{node.name}", (sys.executable, "-m", "shoal.run.agent", *options))
    started.append(process)
    return process


def _is_ready(folder: Path, process: Process) -> bool:
    """True when the agent itself, not an earlier one, has said that it is registered."""
    with suppress(OSError):
        return (folder / "ready").read_text().strip() == str(process.pid)
    return False


def _await(ready: Callable[[], bool], processes: list[Process], what: str, tell: Tell) -> None:
    """Returns when `ready()`. Raises Unavailable, with its last words, when one of the processes ends before, or after READY_S."""
    from shoal.run.processes import is_alive

    began = told = time.monotonic()
    while not ready():
        now = time.monotonic()
        for process in processes:
            if not is_alive(process):
                raise Unavailable(f"{process.name} ended while it started: {last_words(process) or 'it said nothing'} (log: {process.log})")
        if now - began > READY_S:
            said = complaint(processes[-1])
            raise Unavailable(f"{what} is not ready after {READY_S:.0f} s{f' ({said})' if said else ''}; see {processes[-1].log}")
        if now - told > TELL_EVERY_S:
            told = now
            said = complaint(processes[-1])
            tell(f"waiting for {what} ({now - began:.0f} s)" + (f": {said}" if said else ""))
        time.sleep(LOOK_EVERY_S)


def _give_back(state_dir: Path, wanted: Remembered, url: str) -> None:
    """Nodes that `shoal down` took out of service take work again."""
    if not wanted.cordoned:
        return
    from shoal.client.settings import find_settings

    api = find_settings({}, url=url, state_dir=state_dir).api()
    for name in wanted.cordoned:
        api.nodes.resume(name, "shoal up")
