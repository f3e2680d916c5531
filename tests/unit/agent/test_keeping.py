"""What survives the agent: outbox, journal of holds, log offsets."""

from __future__ import annotations

from pathlib import Path

from orders import JOB, prepare

from shoal.agent.holds import Began, Ended, HoldJournal, Made, Over, Phase, Told
from shoal.agent.home import make_home
from shoal.agent.mail import Mail
from shoal.agent.outbox import Outbox
from shoal.base import limits
from shoal.model.attempt import AllocationState
from shoal.model.command import Commit, Stop
from shoal.model.event import AllocationReleased, AllocationStarted, TaskExited
from shoal.model.job import CancelMode, JobSpec
from shoal.model.wire import UploadReply

ALLOCATION = f"{JOB}.1.0"
IDS = {"allocation": ALLOCATION, "attempt": 1}
COMMANDED = {**IDS, "job": JOB}


def started(at_ms: int) -> AllocationStarted:
    return AllocationStarted(allocation=ALLOCATION, attempt=1, at_ms=at_ms)


def stop(mode: CancelMode) -> Stop:
    return Stop(allocation=ALLOCATION, job=JOB, attempt=1, mode=mode, signal="TERM", grace_ms=0)


# --- outbox ---------------------------------------------------------------------------------------------------------------
def test_reports_keep_their_numbers_until_they_are_recorded(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    for at_ms in range(3):
        outbox.put(started(at_ms))
    first, reports = outbox.head(2)
    assert (first, [r.at_ms for r in reports]) == (1, [0, 1])  # type: ignore[union-attr]
    outbox.confirm(2)
    assert outbox.head(10) == (2, (started(1), started(2)))
    outbox.confirm(4)
    assert outbox.head(10) == (4, ())


def test_the_next_agent_finds_what_was_not_recorded(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.put(started(1))
    outbox.put(started(2))
    assert Outbox(tmp_path / "outbox").waiting() == (started(1), started(2))
    outbox.confirm(3)
    assert Outbox(tmp_path / "outbox").waiting() == ()


def test_a_torn_end_costs_only_the_torn_report(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.put(started(1))
    outbox.put(started(2))
    data = (tmp_path / "outbox").read_bytes()
    (tmp_path / "outbox").write_bytes(data[:-3])
    assert Outbox(tmp_path / "outbox").waiting() == (started(1),)


# --- holds ----------------------------------------------------------------------------------------------------------------
def test_a_hold_is_found_again_as_it_was(tmp_path: Path) -> None:
    journal = HoldJournal(tmp_path / "holds")
    hold = journal.take(prepare(tasks=2))
    hold.write(Made(port=4711))
    commit = Commit(allocation=ALLOCATION, job=JOB, attempt=1, master_address="10.0.0.1", master_port=4711, members=())
    hold.write(Began(commit=commit, at_ms=5))
    hold.write(Ended(report=TaskExited(allocation=ALLOCATION, attempt=1, rank=0, exit_code=3)))
    hold.write(Told(stop=stop(CancelMode.FORCE)))
    hold.write(Told(stop=stop(CancelMode.GRACEFUL)))
    (again,) = HoldJournal(tmp_path / "holds").read()
    assert (again.phase, again.port_number, again.commit) == (Phase.STARTED, 4711, commit)
    assert {rank: report.exit_code for rank, report in again.exits.items()} == {0: 3}
    assert again.stop_mode is CancelMode.FORCE
    assert not again.all_exited
    assert again.order == hold.order


def test_what_was_dropped_is_gone_and_a_rewritten_journal_keeps_the_rest(tmp_path: Path) -> None:
    journal = HoldJournal(tmp_path / "holds")
    first, second = journal.take(prepare()), journal.take(prepare(nodes=2, node_rank=1))
    report = AllocationReleased(allocation=second.id, attempt=1)
    second.write(Over(report=report))
    journal.drop(first)
    for _ in range(2):  # the first reading rewrites, the second reads what was rewritten
        (again,) = HoldJournal(tmp_path / "holds").read()
        assert (again.id, again.phase, again.last_word) == (second.id, Phase.RELEASED, report)


def test_states_are_told_in_the_words_of_the_control_plane(tmp_path: Path) -> None:
    hold = HoldJournal(tmp_path / "holds").take(prepare())
    assert hold.state is AllocationState.CLAIMED
    hold.write(Made(port=0))
    assert hold.state is AllocationState.PREPARED
    hold.write(Told(stop=stop(CancelMode.GRACEFUL)))
    assert hold.state is AllocationState.STOPPING
    hold.write(Over(report=None))
    assert hold.state is AllocationState.RELEASED


def test_a_failed_setup_counts_as_the_end_of_all_tasks(tmp_path: Path) -> None:
    hold = HoldJournal(tmp_path / "holds").take(prepare(JobSpec(run="true", setup="true"), tasks=2))
    assert hold.log_ranks == (-1, 0, 1)
    hold.write(Ended(report=TaskExited(allocation=ALLOCATION, attempt=1, rank=-1, exit_code=0)))
    assert not hold.all_exited
    hold.write(Ended(report=TaskExited(allocation=ALLOCATION, attempt=1, rank=-1, exit_code=1)))
    assert hold.all_exited


# --- mail -----------------------------------------------------------------------------------------------------------------
def mail_in(tmp_path: Path) -> Mail:
    home = make_home(tmp_path / "node", tmp_path / "work")
    return Mail(home, Outbox(home.outbox))


def write_log(mail: Mail, rank: int, data: bytes) -> None:
    with open(mail.home.log(JOB, 1, rank), "ab") as file:
        file.write(data)


def test_the_last_word_waits_for_the_last_bytes(tmp_path: Path) -> None:
    """
    1. more output than one upload takes; the last word must not go with the first
    2. the upload that carries the rest carries the last word
    """
    mail = mail_in(tmp_path)
    size = limits.LOG_BYTES_PER_UPLOAD_MAX
    write_log(mail, 0, b"x" * size)
    mail.follow((JOB, 1, (0,)))
    word = AllocationReleased(allocation=ALLOCATION, attempt=1)
    mail.last_word(word, (JOB, 1, (0,)))
    sent = 0
    for _ in range(10):
        parcel = mail.load()
        sent += sum(len(chunk.data) for chunk in parcel.logs)
        assert (word in parcel.reports) == (sent == size)
        if sent == size:
            break
        mail.confirm(parcel, UploadReply(recorded=1, log_offsets=((JOB, 1, 0, sent),)))
    assert sent == size


def test_the_store_decides_where_to_send_from(tmp_path: Path) -> None:
    mail = mail_in(tmp_path)
    write_log(mail, 0, b"0123456789")
    mail.follow((JOB, 1, (0,)))
    parcel = mail.load()
    assert [(c.offset, c.data) for c in parcel.logs] == [(0, b"0123456789")]
    mail.confirm(parcel, UploadReply(recorded=1, log_offsets=((JOB, 1, 0, 4),)))
    assert [(c.offset, c.data) for c in mail.load().logs] == [(4, b"456789")]
    mail.confirm(parcel, UploadReply(recorded=1, log_offsets=((JOB, 1, 0, 10),)))
    assert mail.load().logs == ()
    assert not mail.has_news()
    mail.confirm(parcel, UploadReply(recorded=1, log_offsets=((JOB, 1, 0, 2),)))
    assert [(c.offset, c.data) for c in mail.load().logs] == [(2, b"23456789")], "a store that lost bytes gets them again"


def test_a_loud_task_does_not_hold_up_the_others(tmp_path: Path) -> None:
    mail = mail_in(tmp_path)
    write_log(mail, 0, b"x" * (4 << 20))
    write_log(mail, 1, b"y")
    mail.follow((JOB, 1, (0, 1)))
    assert {chunk.rank for chunk in mail.load().logs} == {0, 1}


def test_news_of_dirty_devices_goes_once(tmp_path: Path) -> None:
    mail = mail_in(tmp_path)
    mail.set_dirty(("GPU-a",))
    assert mail.has_news()
    parcel = mail.load()
    assert parcel.dirty == ("GPU-a",)
    mail.confirm(parcel, UploadReply(recorded=1))
    assert not mail.has_news()
