"""`shoal plan fragmentation --train`, and that a server takes only a table that has stood its check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.cli.main import shoal
from shoal.model.codec import encode_json
from shoal.model.job import GpuAsk, Job, JobSpec, JobState
from shoal.model.wire import JobPage, NodeView
from shoal.run.server import policy_of, read_options
from shoal.scheduling.packing import train
from shoal.scheduling.packing.table import default_file, read_table, write_table
from shoal.testing.clusters import a_host


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(shoal, ["plan", "fragmentation", *map(str, words)], prog_name="shoal")


def a_job(number: int, spec: JobSpec, started_ms: int | None = 1) -> Job:
    return Job(
        id=f"{number:012}",
        number=number,
        project="default",
        owner="ada",
        queue="default",
        state=JobState.SUCCEEDED,
        spec=spec,
        created_ms=0,
        queued_ms=0,
        started_ms=started_ms,
    )


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What `shoal jobs -a --json` and `shoal nodes --json` print of a small cluster."""
    folder = tmp_path_factory.mktemp("lived")
    specs = [GpuAsk(share=400)] * 5 + [GpuAsk(count=1)] * 4 + [GpuAsk(count=4)] * 2
    jobs = [a_job(number, JobSpec(run="true", gpus=ask, cpus=4)) for number, ask in enumerate(specs, 1)]
    jobs.append(a_job(99, JobSpec(run="true", gpus=GpuAsk(count=1, model=("l4",)), cpus=4)))
    jobs.append(a_job(100, JobSpec(run="true", gpus=GpuAsk(count=8), cpus=4), started_ms=None))
    (folder / "jobs.json").write_bytes(encode_json(JobPage(items=tuple(jobs))))
    nodes = [NodeView(node=a_host(f"n{at}", parts="mps")) for at in range(6)]
    (folder / "nodes.json").write_bytes(encode_json(nodes))
    return folder / "jobs.json", folder / "nodes.json"


def test_a_table_is_trained_on_what_ran_and_a_server_takes_it(lived: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    result = run("--train", lived[0], "--fleet", lived[1], "-o", out)
    assert result.exit_code == 0, result.output
    assert "1 jobs are left out" in result.output
    assert "at 100 % load" in result.output
    file = read_table(out.read_bytes())[1]
    assert [(row.gpus, row.gpu_milli, row.count) for row in file.mix] == [(1, 400, 5), (1, 1_000, 4), (4, 1_000, 2)]
    options = read_options(["--state-dir", str(tmp_path), "--packing", "value", "--packing-table", str(out)])
    assert policy_of(options).packing_table == file


def test_a_table_that_fills_too_little_is_not_written(lived: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "CHECK_LOSS_MOST", -50.0)
    out = tmp_path / "table.json"
    result = run("--train", lived[0], "--fleet", lived[1], "-o", out, "--json")
    assert result.exit_code == 1
    assert not out.exists()
    answer = json.loads(result.stdout)
    assert answer["output"] is None
    assert len(answer["faults"]) == 3
    assert "at 80 % load it fills" in answer["faults"][0]


def test_a_history_without_gpus_of_this_fleet_teaches_nothing(lived: tuple[Path, Path], tmp_path: Path) -> None:
    result = run("--train", lived[0], "--fleet", "2xa100:0", "-o", tmp_path / "t.json")
    assert result.exit_code != 0
    (tmp_path / "jobs.json").write_bytes(encode_json(JobPage(items=(a_job(1, JobSpec(run="true", cpus=1)),))))
    result = run("--train", tmp_path / "jobs.json", "--fleet", "2x8", "-o", tmp_path / "t.json")
    assert result.exit_code == 2
    assert "nothing to learn from" in result.output


@pytest.mark.parametrize(
    ("packing", "content", "says"),
    [
        ("value", b"{}", "not a value table"),
        ("value", write_table(default_file()), "it was not checked at 80, 90, 100 % load"),
        ("best-fit", None, "best-fit goes by no table"),
    ],
)
def test_a_server_refuses_what_is_no_checked_table(
    packing: str, content: bytes | None, says: str, lived: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.json"
    if content is None:
        assert run("--train", lived[0], "--fleet", lived[1], "-o", file).exit_code == 0
    else:
        file.write_bytes(content)
    with pytest.raises(SystemExit):
        read_options(["--state-dir", str(tmp_path), "--packing", packing, "--packing-table", str(file)])
    assert says in capsys.readouterr().err
