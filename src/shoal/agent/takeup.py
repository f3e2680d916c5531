"""
Taking up what an earlier agent, or an earlier supervisor, left: journals against the supervisor's list.

`restore` reads the journals; `reconcile` compares them with what the supervisor holds, at each start of the agent and each time the
supervisor had to be started anew. Both end with orders and reports that lead every hold on along its course.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from shoal.agent.course import Course, logs_of, why_stopped
from shoal.agent.holds import Hold, Phase
from shoal.agent.parts import make_parts
from shoal.agent.runtimes.host import SETUP_RANK, remove_directories
from shoal.agent.supervisor import wire
from shoal.agent.unprepared import Unprepared
from shoal.model.event import AllocationPrepared, AllocationReleased
from shoal.model.job import CancelMode
from shoal.model.reason import Reason, ReasonCode

log = logging.getLogger(__name__)


def restore(course: Course) -> None:
    """The holds of the journal. Devices are locked again; last words that were not posted yet are; what is nobody's is swept away."""
    posted = {report.allocation for report in course.mail.outbox.waiting() if isinstance(report, AllocationReleased)}
    for hold in course.journal.read():
        course.holds[hold.id] = hold
        if hold.phase is Phase.RELEASED:
            course.mail.follow(logs_of(hold))
            if hold.last_word is not None and hold.id not in posted:
                course.mail.last_word(hold.last_word, logs_of(hold))
            continue
        with contextlib.suppress(Unprepared):
            course.devices.lock(hold.order)
        if hold.commit is not None:
            course.mail.follow(logs_of(hold))
    held = {hold.id for hold in course.holds.values() if hold.phase is not Phase.RELEASED}
    doomed = course.runtime.sweep(held, logs_needed=bool(course.holds))
    course.aside(lambda: remove_directories(doomed))


def go_on(course: Course, rebooted: bool) -> None:
    """At a start of the agent: what was not started yet is prepared again, or waits for its Commit as before."""
    for hold in tuple(course.holds.values()):
        if hold.phase not in (Phase.PREPARING, Phase.PREPARED):
            continue
        if rebooted:
            hold.reason = _rebooted()
            course.release(hold)
        elif hold.phase is Phase.PREPARING:
            course.make(hold)
        elif _is_ready(course, hold):
            _go_on_prepared(course, hold)
        else:
            course.fail(hold, Unprepared("the job's user or directories are not to be had any more"))


def reconcile(course: Course, listing: wire.Listing, rebooted: bool) -> None:
    """At a start of the agent or of the supervisor: started holds go on from where they are; what nobody holds is ended."""
    looks = {look.allocation: look for look in listing.allocations}
    for hold in tuple(course.holds.values()):
        if hold.phase is not Phase.STARTED:
            continue
        hold.stop_given = CancelMode.NONE
        if rebooted and hold.id not in looks:
            hold.reason = _rebooted()
            course.empty(hold, 0, 0)
        else:
            _go_on_started(course, hold, looks.get(hold.id))
    for look in listing.allocations:
        known = course.holds.get(look.allocation)
        if known is None or known.phase is Phase.RELEASED:
            log.warning("ending %s, which no journal knows", look.allocation)
            order = wire.Stop(look.allocation, force=True) if look.alive else wire.Forget(look.allocation)
            course.orders.append((order, None))


def _rebooted() -> Reason:
    return Reason(code=ReasonCode.NODE_LOST, message="the machine was started anew while the job was on it")


def _is_ready(course: Course, hold: Hold) -> bool:
    """Who the tasks run as is looked up anew; false if that is not to be had any more."""
    if hold.ready is None:
        with contextlib.suppress(Unprepared):
            hold.ready = replace(course.runtime.again(hold.order), seen=make_parts(course.probe, hold.order))
    return hold.ready is not None


def _go_on_prepared(course: Course, hold: Hold) -> None:
    if hold.stop is not None:
        course.release(hold)
        return
    if hold.port is None and hold.port_number:
        with contextlib.suppress(Unprepared):
            hold.port = course.ports(course.rng, hold.port_number)
            if hold.port.port != hold.port_number:
                hold.port.release()  # somebody has it now; peers were told the old one, so try that
                hold.port = None
    ids = {"allocation": hold.id, "attempt": hold.order.attempt}
    course.mail.report(AllocationPrepared(**ids, address=course.address, port=hold.port_number))  # type: ignore[arg-type]
    if hold.order.commit_at_once:
        course.commit_alone(hold)


def _go_on_started(course: Course, hold: Hold, look: wire.AllocationLook | None) -> None:
    if look is None:
        if hold.exits or hold.stop is not None:
            hold.reason = hold.reason or (None if hold.all_exited or hold.stop is not None else why_stopped(hold, "supervisor-lost"))
            course.empty(hold, 0, 0)
        else:
            _start_the_rest(course, hold, ())  # the agent died between its decision and its first order
        return
    for task in look.tasks:
        if not task.lost:
            course.end_task(hold, task)
    if look.tasks:
        course.tell_started(hold)
    if any(task.lost for task in look.tasks) or (look.stopping and look.why != "asked"):
        hold.reason = hold.reason or why_stopped(hold, look.why or "supervisor-lost")
    if look.stopping and not look.alive:
        course.empty(hold, look.cpu_ms, look.memory_bytes_max)
        return
    if hold.stop is not None:
        course.press_stop(hold)
    elif not look.stopping:
        _start_the_rest(course, hold, look.tasks)
        course.press_signals(hold)
    course.after_ends(hold, look.alive, look.cpu_ms, look.memory_bytes_max)


def _start_the_rest(course: Course, hold: Hold, tasks: tuple[wire.TaskLook, ...]) -> None:
    """Tasks that were not started yet; orders for those that were are no-ops."""
    if not _is_ready(course, hold):
        hold.reason = Reason(code=ReasonCode.PREPARE_FAILED, message="the job's user or directories are not to be had any more")
        course.end_by_force(hold)
    elif not tasks:
        course.begin(hold)
    elif hold.order.spec.setup is None or (SETUP_RANK in hold.exits and not hold.setup_failed):
        course.spawn_tasks(hold)
