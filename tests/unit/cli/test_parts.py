"""Parts of the command line that need no server: exit codes of jobs, marks of tasks, values of flags, looks, completion scripts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from shoal.base.errors import Invalid
from shoal.cli import completion, session
from shoal.cli.follow import Printer, has_one_task
from shoal.cli.outcome import end_line, exit_code_of
from shoal.cli.parse import duration_s, memory_bytes, thousandths
from shoal.model.job import GroupSpec, Job, JobEnd, JobSpec, JobState, Resources
from shoal.model.values import CountRange
from shoal.render.look import Look


def job(state: JobState, end: JobEnd | None = None) -> Job:
    return Job(id="x", number=7, project="p", owner="o", spec=JobSpec(), queue="q", state=state, created_ms=1, queued_ms=1, outcome=end)


@pytest.mark.parametrize(
    ("state", "end", "want"),
    [
        (JobState.SUCCEEDED, JobEnd(exit_code=0), 0),
        (JobState.SUCCEEDED, None, 0),
        (JobState.FAILED, JobEnd(exit_code=3), 3),
        (JobState.FAILED, JobEnd(exit_code=137, signal=9), 137),
        (JobState.FAILED, JobEnd(exit_code=0), 1),
        (JobState.FAILED, JobEnd(exit_code=4_000), 255),
        (JobState.TIMEOUT, JobEnd(exit_code=143, signal=15), 143),
        (JobState.TIMEOUT, JobEnd(exit_code=0), 124),
        (JobState.CANCELLED, None, 143),
        (JobState.CANCELLED, JobEnd(exit_code=0), 143),
        (JobState.OOM, None, 137),
        (JobState.NODE_LOST, None, 1),
    ],
)
def test_only_a_success_is_0(state: JobState, end: JobEnd | None, want: int) -> None:
    assert exit_code_of(job(state, end)) == want


def test_the_end_of_a_job_in_a_line() -> None:
    assert end_line(job(JobState.SUCCEEDED, JobEnd(exit_code=0))) == "job 7 ended SUCCEEDED"
    assert (
        end_line(job(JobState.FAILED, JobEnd(exit_code=3, task=1, node="n2"))) == "job 7 ended FAILED (task 1 on n2 ended with exit code 3)"
    )


def test_lines_of_several_tasks_are_marked_whole_and_never_mixed() -> None:
    stream = io.BytesIO()
    printer = Printer(stream, Look(), marked=True)
    printer.print(0, b"one\ntw")
    printer.print(11, b"eins\n")
    printer.print(0, b"o\n\nend")
    printer.end(0)
    assert stream.getvalue() == b"[0] one\n[11] eins\n[0] two\n[0] \n[0] end\n"


def test_bytes_of_a_single_task_pass_as_they_are() -> None:
    stream = io.BytesIO()
    printer = Printer(stream, Look(colour=True), marked=False)
    printer.print(0, b"\xff\x00 10%\r 20%")
    printer.end(0)
    assert stream.getvalue() == b"\xff\x00 10%\r 20%"


class _Gone(io.BytesIO):
    def write(self, data: Any) -> int:
        raise BrokenPipeError


def test_a_reader_that_has_gone_is_noticed_and_not_an_error() -> None:
    printer = Printer(_Gone(), Look(), marked=False)
    printer.print(0, b"x")
    assert printer.broken


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (JobSpec(), True),
        (JobSpec(nodes=CountRange(1, 1), tasks_per_node=1), True),
        (JobSpec(nodes=CountRange(1, 2)), False),
        (JobSpec(tasks_per_node=2), False),
        (JobSpec(any_of=(Resources(nodes=CountRange(2, 2)),)), False),
        (JobSpec(groups=(GroupSpec(name="a"),)), False),
    ],
)
def test_marks_are_for_jobs_that_can_have_several_tasks(spec: JobSpec, want: bool) -> None:
    assert has_one_task(spec) is want


def test_values_of_flags() -> None:
    assert (thousandths("-g", "8"), thousandths("-g", "0.5"), thousandths("-g", "1.125")) == (8_000, 500, 1_125)
    assert (duration_s("-t", "1m30s"), memory_bytes("-m", "2GiB")) == (90.0, 2 << 30)
    for bad in ("", "x", "-1", "1.2345", "1e3"):
        with pytest.raises(Invalid, match=r"^-g: "):
            thousandths("-g", bad)


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colours_and_widths_are_for_terminals_and_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "77")
    assert (session.look_at(io.StringIO()).colour, session.look_at(io.StringIO()).width) == (False, 0)
    assert (session.look_at(_Terminal()).colour, session.look_at(_Terminal()).width) == (True, 77)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not session.look_at(_Terminal()).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not session.look_at(_Terminal()).colour
    assert session.look_at(_Terminal(), utc=True).utc_offset_minutes == 0


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_scripts_and_their_installation(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_SHOAL_COMPLETE" in completion.script_of(shell)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert completion.this_shell() == shell
    assert "works in shells that start from now on" in completion.install()
    assert "completes shoal already" in completion.install()
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written.read_text().count("shoal completion") == 1


def test_a_shell_that_cannot_be_completed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(Invalid, match="no completion for the shell 'tcsh'; name one"):
        completion.this_shell()
