"""A fleet's fragments from a running Shoal's own picture of its nodes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from shoal.cli.main import shoal
from shoal.model.codec import encode_json
from shoal.model.node import Node, NodeFacts, NodeState
from shoal.model.wire import DeviceView, NodeView
from shoal.planning.fleet import nodes_from


def view(name: str, states: str, *, state: NodeState = NodeState.READY, cpus: int = 32) -> NodeView:
    words = {"f": "FREE", "t": "TAKEN", "b": "BROKEN"}
    devices = tuple(
        DeviceView(uuid=f"{name}-{at}", index=at, model="h100", memory_bytes=80 << 30, state=words[one]) for at, one in enumerate(states)
    )
    node = Node(id=name, facts=NodeFacts(hostname=name, address="", cpus=64, memory_bytes=1 << 40), state=state)
    return NodeView(node=node, devices=devices, cpu_milli_free=cpus * 1_000)


VIEWS = (view("n1", "ffff"), view("n2", "ftbf", cpus=2), view("n3", "ffff", state=NodeState.CORDONED))


def test_only_free_devices_of_ready_nodes_count() -> None:
    assert nodes_from(VIEWS) == [{"node": "n1", "cpu": 32.0, "gpus": 4}, {"node": "n2", "cpu": 2.0, "gpus": 2}]


def test_the_command_takes_what_nodes_printed(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_bytes(encode_json(VIEWS))
    shapes = json.dumps([[0.5, 4, 1, 1], [0.5, 4, 8, 1]])
    result = CliRunner().invoke(shoal, ["plan", "fleet_fragments", "--from-fleet", str(file), "--shapes", shapes, "--json"])
    assert result.exit_code == 0, result.output
    found = {number["name"]: number["value"] for number in json.loads(result.stdout)["numbers"]}
    assert found["free"] == 6
    # n1 serves the first shape and never the second; n2 has no CPUs for either.
    assert found["fragment"] == 0.5 * 4 + 2
    file.write_text("[{}]")
    assert CliRunner().invoke(shoal, ["plan", "fleet_fragments", "--from-fleet", str(file), "--shapes", shapes]).exit_code == 2
