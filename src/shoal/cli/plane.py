"""`shoal up`, `down`, `join`: processes of this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.exits import FAILED
from shoal.cli.options import command, json_option
from shoal.cli.session import Session, leave, open_session

if TYPE_CHECKING:
    from shoal.run.up import Brought

PARTS_HELP = "How real GPUs may be given: whole, mps=16, time-slice=4, mig, or mig=3g.40gb@4/1g.10gb@0 (these only)."
LEASE_HELP = "Times of a lease, for example renew=1s,ttl=3s."


@command("up", "shoal up", "shoal up --nodes 2 --pretend h100:8", "shoal up --port 0 --state-dir /tmp/try", "shoal up --foreground")
@click.option("--nodes", "-N", type=int, metavar="COUNT", help="Agents on this machine; as last time, or 1.")
@click.option(
    "--pretend", metavar="MODEL:COUNT[+PARTS]", help="Pretended GPUs on each node in place of real ones: h100:8, or a100:4+mig,l40s:2+mps."
)
@click.option("--parts", metavar="FORM", help=PARTS_HELP)
@click.option("--pool", metavar="NAME", help="Pool that these nodes are in; as last time, or default.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="NUMBER", help="Port of the server; as last time, or 7461. 0: any free one."
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on; beyond loopback it needs a certificate or --insecure.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Its private key, PEM.")
@click.option("--insecure", is_flag=True, help="Serve plain HTTP beyond loopback.")
@click.option("--lease", metavar="TERMS", help=LEASE_HELP)
@click.option("--estimate", type=click.Choice(["limit", "history"]), help="Plan ends by time limits, or by the last runs of a job's kind.")
@click.option("--fair-share", type=click.Choice(["dominant", "decayed", "fair-tree"]), help="How queues compare; see the page on queues.")
@click.option(
    "--packing", type=click.Choice(["best-fit", "spread", "fragmentation", "value"]), help="Which of the nodes that fit is taken."
)
@click.option("--packing-table", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="A table trained for this fleet.")
@click.option("--age-unit", metavar="LENGTH", help="Waiting for so long is worth one step of priority, for example 1h; never by default.")
@click.option("--half-life", metavar="LENGTH", help="Use that lies so far back counts half; 7d by default.")
@click.option("--credit-max", metavar="PART", help="What little use of late earns at most, as a part of the fleet; 1 by default.")
@click.option(
    "--no-preempt", is_flag=True, help="Nobody is stopped or moved for another's priority or guarantee; see the page on checkpoints."
)
@click.option("--database", metavar="URL", help="Keep the state in PostgreSQL, for example postgresql://shoal@db.example/shoal.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then take it down again.")
@json_option("{url, state_dir, server_pid, nodes, started, took_ms}")
def up(foreground: bool, as_json: bool, **asked: Any) -> None:
    """
    Start a control plane and its agents on this machine, and end when all are ready.

    What runs already is left as it is. Without options it comes back as it was the last time, with its queue.
    """
    from shoal.run.up import Asked, bring_up

    session = open_session(as_json)
    named = {name: asked[name] for name in ("nodes", "pretend", "parts", "pool", "host", "port", "database")}
    wish = Asked(**named, server_options=_server_options(asked))
    brought = bring_up(_state_dir(session), wish, session.note)
    session.show(brought, lambda _: _told(session, brought))
    if foreground:
        _stay(session, brought)


def _server_options(asked: dict[str, Any]) -> tuple[str, ...]:
    options: list[str] = []
    for name in ("tls_cert", "tls_key", "packing_table"):
        if asked[name] is not None:
            options += [f"--{name.replace('_', '-')}", str(Path(asked[name]).absolute())]
    options += [f"--{name.replace('_', '-')}" for name in ("insecure", "no_preempt") if asked[name]]
    for name in ("fair_share", "estimate", "packing", "half_life", "credit_max", "age_unit"):
        options += [f"--{name.replace('_', '-')}", asked[name]] if asked[name] else []
    return (*options, "--lease", asked["lease"]) if asked["lease"] else tuple(options)


def _state_dir(session: Session) -> Path:
    from shoal.client.settings import state_dir_of

    given = session.given.state_dir
    return Path(given) if given else state_dir_of(os.environ)


def _told(session: Session, brought: Brought) -> list[str]:
    took = f"in {brought.took_ms / 1_000:.1f} s" if brought.started else "already"
    look = session.look
    count = len(brought.nodes)
    lines = [f"{look.paint('Shoal is up', 'green')} {took} at {brought.url}, {count} node{'s' if count != 1 else ''}"]
    running = [name for name in ("server", *brought.nodes) if name not in brought.started]
    if brought.started and running:
        lines.append(f"  ran already: {', '.join(running)}")
    lines.append(f"  state and logs in {brought.state_dir}")
    if brought.started:
        lines += [
            "  shoal run -- hostname     a first job",
            "  shoal nodes               what there is",
            "  shoal down                stop it again",
        ]
    return lines


def _stay(session: Session, brought: Brought) -> None:
    """Until Ctrl-C or TERM, or until the server ends by itself."""
    from shoal.run.down import bring_down
    from shoal.run.processes import find_process
    from shoal.run.up import SERVER, Place

    folder = Place(Path(brought.state_dir)).processes
    ended = _Ended()
    session.note("Ctrl-C takes it down")
    while not ended.wait(0.5):
        if find_process(folder, SERVER) is None:
            session.note(f"the server has ended by itself; see {folder / 'server.log'}")
            bring_down(Path(brought.state_dir), session.note)
            leave(FAILED)
    downed = bring_down(Path(brought.state_dir), session.note)
    leave(FAILED if downed.left else 0)


class _Ended:
    """Set by Ctrl-C and TERM."""

    def __init__(self) -> None:
        import threading

        self._event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._event.set())

    def wait(self, timeout_s: float) -> bool:
        return self._event.wait(timeout_s)


@command("down", "shoal down", "shoal down --grace 5s", "shoal down --keep-jobs")
@click.option("--grace", metavar="LENGTH", help="Time that running jobs get to end, in place of their own.")
@click.option("--keep-jobs", is_flag=True, help="Leave what runs; it stops by itself if nobody comes back (on_disconnect).")
@json_option("{stopped, cancelled, left}")
def down(grace: str | None, keep_jobs: bool, as_json: bool) -> None:
    """
    Stop what `shoal up` and `shoal join` started here, and say if anything is left.

    Running jobs are cancelled by their own stop ladder; waiting ones stay in the queue for the next `shoal up`.
    """
    from shoal.cli.parse import duration_s
    from shoal.run.down import bring_down

    session = open_session(as_json)
    if grace is not None:
        duration_s("--grace", grace)
    state_dir = _state_dir(session)
    downed = bring_down(state_dir, session.note, keep_jobs=keep_jobs, grace=grace)
    if as_json:
        session.row(downed, "")
    elif not downed.stopped and not downed.left:
        session.out(f"nothing of Shoal runs here (state in {state_dir})")
    else:
        session.out(f"stopped {', '.join(downed.stopped) or 'nothing'}" + ("" if downed.left else "; nothing is left running"))
    if downed.left and not keep_jobs:
        session.note(f"still running: {', '.join(downed.left)}")
        leave(FAILED)
    if downed.left:
        session.note(f"kept: {', '.join(downed.left)}")


@command("join", "shoal join https://shoal.example:7461 --token shoal_...", "shoal join URL --token-file join.token --name rack3-n7")
@click.argument("server", metavar="URL")
@click.option("--token", metavar="TEXT", help="Join token; else $SHOAL_JOIN_TOKEN. Others on this machine may see arguments.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="File with the join token.")
@click.option("--name", metavar="NAME", help="The node's name; this host's by default.")
@click.option("--pretend", metavar="MODEL:COUNT[+PARTS]", help="Pretended GPUs in place of real ones.")
@click.option("--parts", metavar="FORM", help=PARTS_HELP)
@click.option("--pool", metavar="NAME", help="Pool that the node is in; default unless said.")
@click.option("--topology", multiple=True, metavar="LEVEL=NAME", help="Where it stands, from the widest level inwards: rack=r1.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Free text for people and tools.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Certificate of the server, PEM.")
@json_option("{node, url, started}")
def join(server: str, token: str | None, token_file: str | None, name: str | None, as_json: bool, **asked: Any) -> None:
    """
    Make this machine a node of a Shoal elsewhere, and end when it is registered there.

    The agent goes on in the background; `shoal down` stops it. A join token is made by `shoal token create service/join --role join`.
    """
    import socket

    from shoal.run.up import NodeAsked, bring_up_node

    session = open_session(as_json)
    node = name or socket.gethostname()
    state_dir = _state_dir(session)
    kept = _keep_token(state_dir, node, token, token_file)
    if asked["ca_file"] is not None:  # The agent starts elsewhere, now and after each `shoal up`.
        asked["ca_file"] = str(Path(asked["ca_file"]).absolute())
    wish = NodeAsked(name=node, url=server.rstrip("/"), token_file=str(kept), **asked)
    fresh = bring_up_node(state_dir, wish, session.note)
    text = f"node {node} has joined {server}" if fresh else f"node {node} runs already"
    session.row({"node": node, "url": server, "started": fresh}, text)


def _keep_token(state_dir: Path, node: str, token: str | None, token_file: str | None) -> Path:
    """The file with the token, readable for its owner alone. Raises Invalid where there is none."""
    from shoal.base.errors import Invalid

    text = token or (Path(token_file).read_text().strip() if token_file else os.environ.get("SHOAL_JOIN_TOKEN", ""))
    folder = state_dir.absolute() / "nodes"
    path = folder / f"{node}.join"
    if not text:
        if path.exists() or (folder / node / "node.json").exists():
            return path
        raise Invalid("no join token: give --token-file or $SHOAL_JOIN_TOKEN; an admin makes one with `shoal token create ... --role join`")
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f"{text}\n")
    return path
