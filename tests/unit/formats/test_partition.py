"""Ways to give a GPU in parts, as people write them and back."""

from __future__ import annotations

import pytest

from shoal.formats.partition import part_text, partition_of, partition_text
from shoal.model.part import DevicePart

TEXTS = ("whole", "mps=16", "time-slice=4", "mig", "mig=1g.10gb@0/3g.40gb@4")


@pytest.mark.parametrize("text", TEXTS)
def test_a_way_to_give_a_gpu_is_read_from_its_text(text: str) -> None:
    assert partition_text(partition_of(text)) == text


@pytest.mark.parametrize("text", ["mps=0", "mps=49", "mig=1g.10gb", "whole=1", "some", "mig=1g.10gb@x"])
def test_what_is_no_way_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"mps=|profile with its start|are not known"):
        partition_of(text)


def test_parts_that_are_held_are_told_by_profile_and_start_or_by_thousandths() -> None:
    assert part_text(DevicePart(device="g", mode="mig", profile="1g.10gb", start=6)) == "1g.10gb@6"
    assert part_text(DevicePart(device="g", mode="time-slice", thousandths=250)) == "250/1000 time-slice"
