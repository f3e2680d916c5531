"""Nodes: joining, registering, reboots, hands on them, silence and return; and the one formula of the lease."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shoal.base.errors import Conflict, Unavailable
from shoal.lifecycle import lease, node
from shoal.model.attempt import Allocation, AllocationState
from shoal.model.change import ChangeSet
from shoal.model.event import AllocationFenced, AllocationLost, AllocationUnkillable, NodeStateChanged
from shoal.model.job import JobSpec, OnDisconnect, Stop
from shoal.model.node import Device, DeviceState, Node, NodeState
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.model.wire import Held, Join, LeaseTerms, Register
from shoal.testing.gangs import Gang, a_node, a_reason, a_spec

NOW_MS = 1_750_000_000_000
TERMS = LeaseTerms()


def after(changes: ChangeSet) -> Node:
    (record,) = changes.put
    assert isinstance(record, Node)
    return record


def held(allocation: Allocation, state: str = "STARTED") -> Held:
    return Held(allocation=allocation.id, job=allocation.job, attempt=allocation.attempt, state=state)


def register(known: Node, on_node: list[Allocation], *, holds: tuple[Held, ...] = (), **fields: Any) -> node.Registration:
    facts = replace(known.facts, boot_id=fields.pop("boot_id", known.facts.boot_id))
    return node.register(known, Register(facts=facts, held=holds, **{"store_id": "ours", **fields}), on_node, "ours", NOW_MS)


# --- joining --------------------------------------------------------------------------------------------------------------
def test_a_new_name_makes_a_node() -> None:
    facts = a_node("n1").facts
    made = after(node.join(Join(name="n1", facts=facts, pool="big", topology=(("rack", "a3"),)), None, NOW_MS))
    assert (made.id, made.state, made.epoch, made.pool, made.topology) == ("n1", NodeState.READY, 0, "big", (("rack", "a3"),))


def test_a_name_in_use_on_another_living_host_is_refused() -> None:
    other = replace(a_node("n1").facts, hostname="elsewhere")
    with pytest.raises(Conflict, match="node n1 is READY on host n1; host elsewhere must take another name"):
        node.join(Join(name="n1", facts=other), a_node("n1"), NOW_MS)
    lost = replace(a_node("n1"), state=NodeState.LOST)
    assert after(node.join(Join(name="n1", facts=other), lost, NOW_MS)).facts.hostname == "elsewhere"


def test_a_newcomer_does_not_get_the_name_of_a_living_agent_nor_of_one_whose_work_may_run() -> None:
    """Its word that nothing runs would fence what does, and the devices would be in two hands."""
    gang = Gang.running()
    known = a_node("n0")
    again = Join(name="n0", facts=known.facts)
    with pytest.raises(Unavailable, match="living agent"):
        node.join(again, known, NOW_MS, alive=True)
    for state in (NodeState.READY, NodeState.UNREACHABLE):
        with pytest.raises(Unavailable, match="holds 1 allocations that this agent does not have"):
            node.join(again, replace(known, state=state), NOW_MS, on_node=gang.members[:1])
    elsewhere = replace(known.facts, hostname="elsewhere", boot_id="other")
    with pytest.raises(Unavailable, match="holds 1 allocations"):
        node.join(Join(name="n0", facts=elsewhere), replace(known, state=NodeState.LOST), NOW_MS, on_node=gang.members[:1])
    rebooted = Join(name="n0", facts=replace(known.facts, boot_id="other"))
    assert after(node.join(rebooted, known, NOW_MS, on_node=gang.members[:1])).facts.boot_id == "other"
    assert after(node.join(again, known, NOW_MS)).facts == known.facts


# --- registering ----------------------------------------------------------------------------------------------------------
def test_an_agent_that_starts_again_keeps_what_it_holds_under_a_new_epoch() -> None:
    gang = Gang.running()
    answer = register(a_node("n0"), gang.members, holds=(held(gang.members[0]),))
    assert (answer.keep, answer.kill, answer.events) == ((gang.members[0].id,), (), ())
    assert (answer.node.epoch, answer.rebooted) == (2, False)


def test_case_13_what_the_control_plane_has_forgotten_is_killed() -> None:
    """Platform case 13."""
    gang = Gang.running()
    answer = register(a_node("n0"), [], holds=(held(gang.members[0]),))
    assert (answer.keep, answer.kill) == ((), (gang.members[0].id,))


def test_what_belongs_to_another_installation_is_not_killed() -> None:
    gang = Gang.running()
    answer = register(a_node("n0"), [], holds=(held(gang.members[0]),), store_id="theirs")
    assert (answer.keep, answer.kill) == ((), ())


def test_what_an_agent_does_not_have_is_fenced_but_a_prepare_may_still_be_on_its_way() -> None:
    started, claimed = Gang.running().members[0], Gang.placed().members[0]
    assert [job for job, _ in register(a_node("n0"), [started]).events] == [started.job]
    assert register(a_node("n0"), [claimed]).events == ()


def test_case_15_a_reboot_fences_at_once_whatever_the_agent_remembers() -> None:
    """Platform case 15."""
    gang = Gang.running()
    member = gang.members[0]
    answer = register(a_node("n0"), [member], holds=(held(member),), boot_id="boot-2")
    assert (answer.rebooted, answer.keep, answer.kill) == (True, (), (member.id,))
    assert answer.events == ((member.job, AllocationFenced(allocation=member.id, attempt=1, how="the node has rebooted")),)


def test_a_reboot_fences_also_what_was_only_claimed_since_its_prepare_may_have_been_obeyed() -> None:
    claimed = Gang.placed().members[0]
    answer = register(a_node("n0"), [claimed], boot_id="boot-2")
    assert answer.events == ((claimed.job, AllocationFenced(allocation=claimed.id, attempt=1, how="the node has rebooted")),)
    assert register(replace(a_node("n0"), epoch=0), [claimed], boot_id="boot-2").events == ()


def test_what_ended_before_a_reboot_may_still_send_its_reports() -> None:
    member = Gang.running().members[0]
    answer = register(a_node("n0"), [member], holds=(held(member, "RELEASED"),), boot_id="boot-2")
    assert (answer.keep, answer.events) == ((member.id,), ())


def test_the_first_register_is_no_reboot() -> None:
    assert not register(replace(a_node("n0"), epoch=0), [], boot_id="boot-9").rebooted


def test_a_node_that_registers_again_is_as_it_was_wanted() -> None:
    drained = replace(a_node("n0"), state=NodeState.LOST, wanted=NodeState.DRAINING, wanted_reason=a_reason(ReasonCode.BY_HAND, "drained"))
    back = register(drained, []).node
    assert (back.state, back.reason) == (NodeState.DRAINING, drained.wanted_reason)


def test_an_agents_restart_mends_no_broken_device() -> None:
    broken = after(node.devices_found(a_node("n0", gpus=2), [("n0-gpu1", a_reason(ReasonCode.UNHEALTHY, "ECC"))], NOW_MS))
    fresh = Register(facts=a_node("n0", gpus=2).facts, store_id="ours")
    devices = node.register(broken, fresh, [], "ours", NOW_MS).node.facts.devices
    assert [d.broken is not None for d in devices] == [False, True]


# --- by hand --------------------------------------------------------------------------------------------------------------
def test_drain_cordon_and_resume_say_who_and_why_and_repeat_without_effect() -> None:
    drained = after(node.drain(a_node("n0"), "new fans", "user/ops", NOW_MS))
    assert drained.reason is not None
    assert (drained.state, drained.reason.message) == (NodeState.DRAINING, "drained by user/ops: new fans")
    assert node.drain(drained, "again", "user/ops", NOW_MS).empty
    cordoned = after(node.cordon(drained, "", "user/ops", NOW_MS))
    assert cordoned.state is NodeState.CORDONED
    ready = after(node.resume(cordoned, "user/ops", NOW_MS))
    assert (ready.state, ready.reason) == (NodeState.READY, None)
    assert node.resume(ready, "user/ops", NOW_MS).empty


def test_hands_on_a_node_that_is_away_count_once_it_is_back() -> None:
    away = after(node.silence(a_node("n0"), NOW_MS - 40_000, (), NOW_MS, TERMS))
    drained = after(node.drain(away, "new fans", "user/ops", NOW_MS))
    assert (drained.state, drained.wanted, drained.reason) == (NodeState.UNREACHABLE, NodeState.DRAINING, away.reason)
    back = after(node.heard(drained, NOW_MS))
    assert back.reason is not None
    assert (back.state, back.reason.message) == (NodeState.DRAINING, "drained by user/ops: new fans")


def test_a_node_with_work_on_it_is_not_removed() -> None:
    gang = Gang.running()
    with pytest.raises(Conflict, match="node n0 has 1 allocations"):
        node.remove(a_node("n0"), gang.members, "user/ops", NOW_MS)
    gang.tell(gang.exited(0))
    gang.tell(gang.released(0))
    assert node.remove(a_node("n0"), gang.members, "user/ops", NOW_MS).delete == (a_node("n0"),)


# --- silence --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("silent_ms", "want"),
    [
        (0, NodeState.READY),
        (29_999, NodeState.READY),
        (30_000, NodeState.UNREACHABLE),
        (299_999, NodeState.UNREACHABLE),
        (300_000, NodeState.LOST),
    ],
)
def test_silence_makes_a_node_unreachable_then_lost(silent_ms: int, want: NodeState) -> None:
    known = a_node("n0")
    changes = node.silence(known, NOW_MS - silent_ms, (a_spec(),), NOW_MS, TERMS)
    assert (known if changes.empty else after(changes)).state is want


def test_a_node_is_lost_only_when_the_most_patient_of_its_jobs_has_stopped() -> None:
    patient = a_spec(on_disconnect=OnDisconnect(stop_after=Duration(3_600_000)))
    changes = node.silence(a_node("n0"), NOW_MS - 600_000, (a_spec(), patient), NOW_MS, TERMS)
    assert after(changes).state is NodeState.UNREACHABLE


def test_case_5_a_node_back_within_stop_after_is_ready_and_its_work_untouched() -> None:
    """Platform case 5."""
    gang = Gang.running()
    away = after(node.silence(a_node("n0"), NOW_MS - 60_000, (gang.job.spec,), NOW_MS, TERMS))
    assert away.state is NodeState.UNREACHABLE
    assert node.silence_of(gang.members[0], gang.job.spec, NOW_MS - 60_000, NOW_MS, TERMS) == ()
    assert after(node.heard(away, NOW_MS)).state is NodeState.READY
    assert node.heard(a_node("n0"), NOW_MS).empty


def test_silence_loses_an_allocation_at_stop_by_and_fences_it_at_fenced_at() -> None:
    gang = Gang.running()
    spec, member = gang.job.spec, gang.members[0]
    heard_ms = NOW_MS

    def kinds(at_ms: int, allocation: Allocation = member) -> list[type]:
        return [type(e) for e in node.silence_of(allocation, spec, heard_ms, at_ms, TERMS)]

    lost_ms, fenced_ms = lease.stop_by(heard_ms, spec, TERMS), lease.fenced_at(heard_ms, spec, TERMS)
    assert (kinds(lost_ms - 1), kinds(lost_ms)) == ([], [AllocationLost])
    lost = replace(member, state=AllocationState.LOST)
    assert (kinds(fenced_ms - 1, lost), kinds(fenced_ms, lost)) == ([], [AllocationFenced])
    assert kinds(fenced_ms, replace(lost, stuck=(4711,))) == []
    assert kinds(fenced_ms, replace(member, state=AllocationState.RELEASED)) == []


# --- findings -------------------------------------------------------------------------------------------------------------
def test_unkillable_processes_cordon_the_node_until_a_person_has_looked() -> None:
    event = AllocationUnkillable(allocation="a.1.0", attempt=1, pids=(7, 8))
    cordoned = after(node.unkillable(a_node("n0"), event, NOW_MS))
    assert cordoned.reason is not None
    assert (cordoned.state, cordoned.reason.code) == (NodeState.CORDONED, ReasonCode.UNKILLABLE)
    assert node.unkillable(cordoned, event, NOW_MS + 1).empty
    assert after(node.resume(cordoned, "user/ops", NOW_MS)).state is NodeState.READY


def test_a_device_that_fell_off_the_bus_cordons_its_node_and_a_sick_one_does_not() -> None:
    gone = [("n0-gpu0", a_reason(ReasonCode.DEVICE_LOST, "fell off the bus"))]
    sick = [("n0-gpu0", a_reason(ReasonCode.UNHEALTHY, "ECC"))]
    assert after(node.devices_found(a_node("n0"), gone, NOW_MS)).state is NodeState.CORDONED
    marked = after(node.devices_found(a_node("n0"), sick, NOW_MS))
    assert marked.state is NodeState.READY
    assert node.devices_found(marked, sick, NOW_MS + 9).empty
    mended = node.devices_found(marked, [], NOW_MS)
    assert [d.broken for d in after(mended).facts.devices] == [None] * 8
    assert isinstance(mended.events[0].body, NodeStateChanged)


@pytest.mark.parametrize(
    ("broken", "dirty", "held_by_one", "want"),
    [
        (True, True, True, DeviceState.BROKEN),
        (False, True, True, DeviceState.DIRTY),
        (False, True, False, DeviceState.DIRTY),
        (False, False, True, DeviceState.TAKEN),
        (False, False, False, DeviceState.FREE),
    ],
)
def test_the_state_of_a_device_follows_from_what_is_known(broken: bool, dirty: bool, held_by_one: bool, want: DeviceState) -> None:
    device = Device(uuid="g", index=0, model="h100", broken=a_reason() if broken else None)
    assert node.device_state(device, held=held_by_one, dirty=dirty) is want


# --- the formula ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stop_after_ms", [1_000, 30_000, 300_000, 3_600_000])
@pytest.mark.parametrize("grace_ms", [0, 30_000, 3_600_000])
def test_the_agent_has_always_stopped_before_the_control_plane_fences(stop_after_ms: int, grace_ms: int) -> None:
    spec: JobSpec = a_spec(on_disconnect=OnDisconnect(stop_after=Duration(stop_after_ms)), stop=Stop(grace=Duration(grace_ms)))
    sent_ms, heard_ms = NOW_MS, NOW_MS  # it cannot be heard before it was sent: the tightest case
    assert lease.unreachable_at(heard_ms, TERMS) <= lease.stop_by(heard_ms, spec, TERMS)
    assert lease.stop_by(sent_ms, spec, TERMS) + grace_ms + TERMS.kill_bound_ms == lease.gone_by(sent_ms, spec, TERMS)
    assert lease.fenced_at(heard_ms, spec, TERMS) - lease.gone_by(sent_ms, spec, TERMS) == TERMS.skew_ms
