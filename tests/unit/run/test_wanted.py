"""Which nodes a start makes of what was there before and what is asked now."""

from __future__ import annotations

import pytest

from shoal.base.errors import Invalid
from shoal.run.up import Asked, NodeAsked, Remembered, _wanted


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ((), 2, ("n1", "n2")),
        (("n1", "n2"), 1, ("n1",)),
        (("n1", "n3"), 4, ("n1", "n3", "n2", "n4")),
        (("n2",), None, ("n2",)),
    ],
)
def test_new_nodes_have_names_that_no_other_has(before: tuple[str, ...], count: int | None, after: tuple[str, ...]) -> None:
    known = Remembered(nodes=tuple(NodeAsked(name=name, pretend="h100:1") for name in before))
    wanted = _wanted(known, Asked(nodes=count, pretend="h100:1"))
    assert tuple(node.name for node in wanted.nodes) == after


def test_a_name_under_which_this_machine_has_joined_another_shoal_is_not_given_twice() -> None:
    joined = NodeAsked(name="n1", url="https://far:7461")
    assert [node.name for node in _wanted(Remembered(nodes=(joined,)), Asked()).nodes] == ["n2", "n1"]


def test_real_gpus_are_given_as_was_asked_and_pretended_ones_say_so_themselves() -> None:
    before = Remembered(nodes=(NodeAsked(name="n1"),))
    assert _wanted(before, Asked(parts="mps=4")).nodes == (NodeAsked(name="n1", parts="mps=4"),)
    assert _wanted(_wanted(before, Asked(parts="mig")), Asked()).nodes[0].parts == "mig"
    with pytest.raises(Invalid, match=r"--parts half: .*mps=16"):
        _wanted(before, Asked(parts="half"))
    with pytest.raises(Invalid, match=r"--pretend h100:8\+mig"):
        _wanted(before, Asked(parts="mig", pretend="h100:8"))
