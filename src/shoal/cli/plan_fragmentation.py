"""`shoal plan fragmentation --train`: a value table for one fleet, from its own history, for `shoal up --packing value`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli.exits import FAILED
from shoal.cli.session import Session, leave

if TYPE_CHECKING:
    from shoal.model.job import JobSpec
    from shoal.model.node import Node
    from shoal.render.look import Look
    from shoal.sim.training import Learned

SEED = 1
"""Of the arrivals that are drawn: the same history gives the same table."""


def train_table(session: Session, history: Path, fleet: str, output: Path) -> None:
    """Trains, checks, and writes the table; where the check fails, says so in numbers, writes nothing and ends with 1."""
    from shoal.sim.training import learn_table

    nodes = _nodes(fleet)
    source = f"trained on {history.name}, for {fleet}"
    learned = learn_table(_specs(history, nodes), nodes, source, SEED, lambda done, of: session.note(f"round {done} of {of}"))
    if learned.left_out:
        session.note(f"{learned.left_out:,} jobs are left out: no nodes of this fleet could run them if they were empty")
    checked = [load._asdict() for load in learned.checked]
    if not learned.faults:
        output.write_bytes(learned.content)
    record = {"output": None if learned.faults else str(output), "checked": checked, "faults": learned.faults}
    session.show(record, lambda look: _lines(learned, output, look))
    if learned.faults:
        leave(FAILED)


def _lines(learned: Learned, output: Path, look: Look) -> Iterable[str]:
    yield look.paint("GPUs filled, %        value      FGD best fit", "bold")
    for check in learned.checked:
        yield f"at {check.load:3.0f} % load      {check.value:8.2f} {check.fragmentation:8.2f} {check.best_fit:8.2f}"
    if learned.faults:
        yield "The table is not written:"
        yield from (f"  {fault}" for fault in learned.faults)
    else:
        yield f"written: {output}; start the server with --packing value --packing-table {output}"


def _nodes(text: str) -> tuple[Node, ...]:
    """The fleet: as `shoal simulate --fleet` names it, or what `shoal nodes --json` printed."""
    from shoal.model.codec import decode_json
    from shoal.model.wire import NodeView
    from shoal.sim.simulate import read_fleet, read_node_table

    file = Path(text)
    if not file.is_file():
        return read_fleet(text)
    content = file.read_bytes()
    if content.lstrip()[:1] == b"[":
        return tuple(view.node for view in decode_json(content, list[NodeView]))
    return read_node_table(content.decode().splitlines(), text)


def _specs(file: Path, nodes: tuple[Node, ...]) -> list[JobSpec]:
    """What was asked for: a trace that `shoal simulate` reads, or what `shoal jobs --all --json` printed."""
    import gzip

    from shoal.model.codec import decode_json
    from shoal.model.wire import JobPage
    from shoal.sim.simulate import read_trace

    content = file.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content.lstrip()[:1] == b"{":
        return [job.spec for job in decode_json(content, JobPage).items if job.started_ms is not None]
    per_node = max((len(node.facts.devices) for node in nodes), default=0)
    return [job.spec for job in read_trace(content.decode(errors="replace").splitlines(), str(file), per_node).jobs]
