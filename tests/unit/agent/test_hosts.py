from __future__ import annotations

import pytest
from orders import members

from shoal.agent.hosts import hostfile, pack_hosts, tasks_per_node


@pytest.mark.parametrize(
    ("names", "want"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n1", "n2", "n3"), "n[1-3]"),
        (("n1", "n2", "n4"), "n[1-2,4]"),
        (("n8", "n9", "n10"), "n[8-9],n10"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("n2", "n1"), "n[2,1]"),
        (("a", "b1", "b2", "c"), "a,b[1-2],c"),
        (("rack1node1", "rack1node2", "rack2node1"), "rack1node[1-2],rack2node1"),
        (("1", "2"), "[1-2]"),
    ],
)
def test_packing_keeps_order_and_width(names: tuple[str, ...], want: str) -> None:
    assert pack_hosts(names) == want


def test_the_hostfile_has_a_line_per_node_in_rank_order() -> None:
    assert hostfile(members(2, 4)) == "10.0.0.1 slots=4\n10.0.0.2 slots=4\n"


def test_task_counts_are_told_in_runs() -> None:
    assert tasks_per_node((*members(3, 2), *members(1, 1))) == "2(x3),1"
