"""The transition table: complete, deterministic, sensible, and printed as it stands."""

from __future__ import annotations

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from shoal.base.errors import Conflict
from shoal.lifecycle.states import (
    ALLOCATION,
    DEVICE,
    JOB,
    NODE,
    OfAllocation,
    OfDevice,
    OfJob,
    OfNode,
    markdown,
)
from shoal.model.attempt import HOLDING, AllocationState
from shoal.model.job import ENDED, WAITING, JobState
from shoal.model.node import DeviceState, NodeState

ROOT = Path(__file__).parents[3]
TABLES: list[tuple[Any, type[StrEnum], type[StrEnum], set[Any]]] = [
    (JOB, OfJob, JobState, {JobState.QUEUED}),
    (ALLOCATION, OfAllocation, AllocationState, {AllocationState.CLAIMED}),
    (NODE, OfNode, NodeState, {NodeState.READY}),
    (DEVICE, OfDevice, DeviceState, {DeviceState.FREE}),
]


def test_the_page_in_the_docs_is_the_table() -> None:
    assert (ROOT / "docs/reference/states.md").read_text() == markdown(), "run tools/docs_states.py"


def test_the_tool_writes_the_page_that_the_test_reads() -> None:
    place = importlib.util.spec_from_file_location("docs_states", ROOT / "tools/docs_states.py")
    assert place is not None
    assert place.loader is not None
    tool = importlib.util.module_from_spec(place)
    place.loader.exec_module(tool)
    assert tool.PAGE == ROOT / "docs/reference/states.md"


@pytest.mark.parametrize(("table", "triggers", "states", "births"), TABLES, ids=lambda v: getattr(v, "noun", ""))
def test_every_trigger_has_a_row_and_every_state_can_be_reached(table: Any, triggers: Any, states: Any, births: set[Any]) -> None:
    assert set(table.cells) == set(triggers)
    reached, grown = set(), set(births)
    while grown - reached:
        reached |= grown
        grown = {after for row in table.cells.values() for before, after in row.items() if before in reached}
    assert set(states) - reached == ({JobState.DEADLINE} if states is JobState else set())


def test_a_job_leaves_an_end_only_by_requeue() -> None:
    for trigger, row in JOB.cells.items():
        for before, after in row.items():
            if before in ENDED and after is not before:
                assert (trigger, after) == (OfJob.REQUEUE, JobState.QUEUED)


def test_a_job_that_may_hold_devices_waits_or_ends_only_when_all_are_released() -> None:
    for trigger, row in JOB.cells.items():
        for before, after in row.items():
            if before not in ENDED | WAITING and after in ENDED | WAITING:
                assert trigger.startswith("all released"), (trigger, before, after)


def test_devices_come_back_only_by_release_or_fence() -> None:
    for trigger, row in ALLOCATION.cells.items():
        for before, after in row.items():
            assert before in HOLDING
            if after not in HOLDING:
                assert trigger in (OfAllocation.RELEASED, OfAllocation.FENCED)


def test_a_report_that_does_not_fit_is_ignored_and_a_wish_that_does_not_fit_is_refused_in_a_sentence() -> None:
    assert JOB.reported(OfJob.START, JobState.QUEUED) is None
    with pytest.raises(Conflict) as refused:
        JOB.asked(OfJob.HOLD, JobState.RUNNING, "12")
    assert refused.value.message == "job 12 is RUNNING; hold needs QUEUED, HELD"
