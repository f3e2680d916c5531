"""What-if questions and snapshots: the next cycle with a change, told to whom may see it, and the same cycle again from a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Forbidden, Invalid, NotFound
from shoal.base.limits import WHAT_IF_JOBS_MAX
from shoal.control import nodes, questions, queues
from shoal.control.access import Caller
from shoal.control.jobs import Submission, submit_job
from shoal.model.codec import decode_json
from shoal.model.job import Dependency, Job, JobState
from shoal.model.queue import QueueSpec, Quota
from shoal.model.values import Duration
from shoal.model.what_if import WhatIf, WhatIfAsk
from shoal.scheduling.scene import Scene
from shoal.sim.again import run_again

OTHER = Caller(principal="user/otto", project="other", role="member")
HOUR_MS = 3_600_000


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    for name in ("n1", "n2"):
        service.add_node(name)
    service.run(100)
    yield service
    service.close()


def run(service: Service, **fields: Any) -> Job:
    job = service.submit(spec_of(**{"run_ms": HOUR_MS, **fields}))
    service.run(500)
    return job


def ask(service: Service, **fields: Any) -> WhatIf:
    before = service.store.version()
    answer = questions.ask_what_if(service.plane, ANNA, "default", WhatIfAsk(**fields))
    assert service.store.version() == before, "a question wrote something"
    return answer


def fates(answer: WhatIf) -> dict[str, tuple[str | None, str]]:
    return {change.job: (change.now.what if change.now else None, change.then.what) for change in answer.changes}


def test_a_submitted_job_starts_where_there_is_room_and_else_says_when_and_why_not(service: Service) -> None:
    answer = ask(service, submit=(spec_of(gpus=4),))
    (change,) = answer.changes
    assert (change.new, change.now, change.then.what, len(change.then.nodes)) == (True, None, "starts", 1)
    run(service, nodes=2, gpus=4, time=Duration(HOUR_MS))
    (change,) = ask(service, submit=(spec_of(gpus=4),)).changes
    assert change.then.what == "waits"
    assert change.then.start_ms is not None
    assert 0 < change.then.start_ms - service.clock.now_ms() <= HOUR_MS
    (why,) = ask(service, submit=(spec_of(gpus=4),)).why
    assert why.blockers_smallest is True


def test_cancel_drain_and_return_say_who_would_start_and_who_would_not(service: Service) -> None:
    holder = run(service, nodes=2, gpus=4)
    waiting = run(service, gpus=4)
    assert fates(ask(service, cancel=(holder.address,))) == {holder.address: ("runs", "gone"), waiting.address: ("waits", "starts")}
    assert fates(ask(service, cancel=(holder.address,), drain=("n1", "n2"))) == {holder.address: ("runs", "gone")}
    service.add_node("n3")
    service.settle(nodes.cordon_node(service.plane, SYSTEM, "n3", "broken"))
    service.cancel(holder)
    service.run(3_000)
    last = run(service, nodes=2, gpus=4)
    assert fates(ask(service, back=("n3",))) == {last.address: ("waits", "starts")}
    service.settle(nodes.resume_node(service.plane, SYSTEM, "n3"))
    service.run(500)
    assert service.job(last).state is JobState.RUNNING, "what was said came true"


def test_who_begins_later_is_no_earlier_for_any_change(service: Service) -> None:
    holder = run(service, nodes=2, gpus=4, time=Duration(HOUR_MS))
    later = run(service, gpus=4, begin="+2h")
    (change,) = ask(service, cancel=(holder.address,)).changes
    assert change.job == holder.address
    answer = ask(service, cancel=(later.address,))
    assert [(c.job, c.now and c.now.start_ms) for c in answer.changes] == [(later.address, later.not_before_ms)]


def test_a_larger_quota_starts_who_waits_for_it(service: Service) -> None:
    limited = QueueSpec(quotas={"gpu": Quota(nominal=4_000, borrowing_limit=0)})
    service.settle(queues.set_queue(service.plane, SYSTEM, "small", limited))
    service.run(100)
    run(service, gpus=4, queue="small")
    waiting = run(service, gpus=4, queue="small")
    assert fates(ask(service, quotas={"small": {"gpu": 6_000}})) == {}
    assert fates(ask(service, quotas={"small": {"gpu": 8_000}})) == {waiting.address: ("waits", "starts")}


def test_who_would_be_stopped_is_told(service: Service) -> None:
    low = [run(service, gpus=4, time=Duration(HOUR_MS * 9)) for _ in range(2)]
    answer = ask(service, submit=(spec_of(gpus=4, priority=9),))
    (new, stopped) = answer.changes
    assert (new.new, new.then.what) == (True, "clears")
    assert (stopped.now and stopped.now.what, stopped.then.what) == ("runs", "stopped")
    assert stopped.job in [job.address for job in low]


def test_jobs_of_other_projects_are_counted_and_not_told_and_cannot_be_named(service: Service) -> None:
    service.settle(queues.set_queue(service.plane, SYSTEM, "theirs", QueueSpec(project="other")))
    service.run(100)
    holder = run(service, nodes=2, gpus=4)
    submission = Submission(project="other", spec=spec_of(gpus=4, queue="theirs"))
    theirs = service.settle(submit_job(service.plane, OTHER, submission)).job
    service.run(500)
    answer = ask(service, cancel=(holder.address,))
    assert (fates(answer), answer.others) == ({holder.address: ("runs", "gone")}, 1)
    assert theirs.address not in str(answer.why)
    for named in ({"cancel": (theirs.id,)}, {"quotas": {"theirs": {"gpu": 1}}}, {"drain": ("n9",)}):
        with pytest.raises(NotFound):
            ask(service, **named)
    whole = questions.ask_what_if(service.plane, SYSTEM, "default", WhatIfAsk(cancel=(holder.address,)))
    assert whole.others == 0
    assert len(whole.changes) == 2


def test_a_question_is_bounded_and_its_jobs_are_checked(service: Service) -> None:
    with pytest.raises(Invalid, match="at most 16"):
        ask(service, submit=(spec_of(),) * (WHAT_IF_JOBS_MAX + 1))
    with pytest.raises(Invalid, match="depends_on"):
        ask(service, submit=(spec_of(depends_on=(Dependency(job="1"),)),))
    with pytest.raises(Invalid, match="no queue"):
        ask(service, submit=(spec_of(queue="nowhere"),))


def test_a_snapshot_is_for_admins_masked_and_gives_the_same_plan_again(service: Service) -> None:
    run(service, nodes=2, gpus=4, env={"TOKEN": "hunter2"}, run=("train", "--key=hunter2"))
    run(service, gpus=4, env={"TOKEN": "hunter2"}, setup="echo hunter2")
    with pytest.raises(Forbidden):
        questions.debug_snapshot(service.plane, ANNA)
    raw = questions.debug_snapshot(service.plane, SYSTEM)
    assert b"hunter2" not in raw
    scene = decode_json(raw, Scene)
    assert scene.form == 1
    assert run_again(scene).plan == run_again(service.plane.schedule.scene(scene.now_ms)).plan, "what is masked moves no plan"
    assert run_again(scene) == run_again(decode_json(raw, Scene))
