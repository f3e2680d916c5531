"""`shoal simulate` on traces and scenarios: tables, JSON, comparison, and what it says of files that it cannot play."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.cli.main import shoal
from shoal.sim.generate import LogPlan, generate_swf

SCENARIO = "name: tiny\ncluster: [n0]\njobs:\n  - {name: a, gpus: 8, runs: 5s}\nexpect:\n  - {at: 1s, jobs: {a: RUNNING}}\n"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "log.swf"
    path.write_text("\n".join(generate_swf(LogPlan(jobs=60, processors=64, largest=32))) + "\n")
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(shoal, ["simulate", *map(str, words)], prog_name="shoal")


def test_a_trace_on_its_own_machine_gives_a_table_and_classes(log: Path) -> None:
    result = run(log)
    assert result.exit_code == 0, result.output
    assert "60 jobs on 8 nodes with 64 GPUs" in result.output
    assert "UTILISATION" in result.output
    assert [line.split()[0] for line in result.output.splitlines() if line[:1].isdigit()] == ["1", "2-8", "9-64"]


def test_two_policies_stand_side_by_side_and_the_bytes_are_the_same_again(log: Path) -> None:
    words = (log, "--fleet", "4x8", "--policy", "fcfs:order=strict", "--policy", "wide:near_by_default=false", "--json")
    first, again = run(*words), run(*words)
    assert first.stdout == again.stdout
    answer = json.loads(first.stdout)
    assert [one["policy"]["name"] for one in answer["runs"]] == ["fcfs", "wide"]
    assert answer["runs"][1]["policy"]["policy"]["near_by_default"] is False
    assert answer["runs"][0]["metrics"]["wait_s"]["mean"] > answer["runs"][1]["metrics"]["wait_s"]["mean"] > 0
    assert answer["gpus"] == 32


def test_load_and_count_change_what_is_played(log: Path) -> None:
    slow, fast = (json.loads(run(log, "--load", load, "--jobs", "30", "--json").stdout) for load in ("1", "4"))
    assert fast["jobs"] == 30
    assert fast["runs"][0]["metrics"]["makespan_s"] < slow["runs"][0]["metrics"]["makespan_s"]
    assert any("4 times as fast" in note for note in fast["notes"])


def test_a_compressed_log_is_read_as_it_is(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert json.loads(run(packed, "--json").stdout)["runs"] == json.loads(run(log, "--json").stdout)["runs"]


def test_pods_run_on_a_table_of_nodes_and_shares_become_whole(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,96000,393216,2,G2\n")
    heading = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    (tmp_path / "pods.csv").write_text(f"{heading}\np0,1000,1024,1,500,,LS,Running,0,50,0\n")
    answer = json.loads(run(tmp_path / "pods.csv", "--fleet", tmp_path / "nodes.csv", "--json").stdout)
    assert (answer["nodes"], answer["gpus"], answer["runs"][0]["metrics"]["jobs"]) == (1, 2, 1)
    assert any("share of a GPU" in note for note in answer["notes"])


def test_a_scenario_is_judged(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(SCENARIO)
    bad.write_text(SCENARIO.replace("RUNNING", "QUEUED"))
    result = run(good)
    assert (result.exit_code, "1 of 1 interleavings come out as expected" in result.output) == (0, True)
    result = run(bad)
    assert result.exit_code == 1
    assert "at 1s: job a: is RUNNING, wanted QUEUED" in result.output
    assert json.loads(run(bad, "--json").stdout)["faults"] == ["at 1s: job a: is RUNNING, wanted QUEUED (attempt 1 runs on n0 with 8 GPUs)"]


@pytest.mark.parametrize(
    ("name", "text", "more", "want"),
    [
        ("x.yaml", SCENARIO.replace("gpus", "gpsu"), (), "x.yaml has 1 fault; nothing was played"),
        ("x.swf", "; MaxProcs: 8\n" + "1 " * 18 + "\n1 2\n", (), "x.swf:3: a job has 18 fields"),
        ("x.csv", "a,b\n1,2\n", (), "not a trace that is known here"),
        ("x.txt", "word " * 20 + "\n", (), "not a trace that is known here"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,0.5\n", ("--fleet", "1x8", "--parts", "half"), "mps=16"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,3\n", (), "give --fleet"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,3\n", ("--fleet", "lots"), "write nodes x GPUs"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,3\n", ("--fleet", "1x8", "--policy", "p:packing=worst"), "packing"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,3\n", ("--fleet", "1x8", "--policy", "p:pakcing=x"), "did you mean 'packing'"),
        ("x.csv", "submit_time,duration,num_gpus\n1,2,3\n", ("--fleet", "1x8", "--load", "0"), "load 0 cannot be"),
    ],
)
def test_what_cannot_be_played_is_told_and_ends_with_2(tmp_path: Path, name: str, text: str, more: tuple[str, ...], want: str) -> None:
    (tmp_path / name).write_text(text)
    result = run(tmp_path / name, *more)
    assert result.exit_code == 2, result.output
    assert want in result.stderr


@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_a_replay_is_drawn_with_its_queue_use_and_jobs_on_nodes(log: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"week.{kind}"
    result = run(log, "--policy", "default", "--policy", "fcfs:order=strict", "--plot", file)
    assert result.exit_code == 0, result.output
    drawn = file.read_bytes()
    assert len(drawn) > 10_000
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n" if kind == "png" else drawn.count(b"<path") > 100


def test_equal_replays_give_equal_pictures_and_many_bars_are_no_shapes(log: Path, tmp_path: Path) -> None:
    first, again, big = (tmp_path / name for name in ("a.svg", "b.svg", "c.svg"))
    for file in (first, again):
        assert run(log, "--jobs", "40", "--plot", file).exit_code == 0
    assert first.read_bytes() == again.read_bytes()
    many = tmp_path / "many.swf"
    many.write_text("\n".join(generate_swf(LogPlan(jobs=300, processors=256, largest=256))) + "\n")
    assert run(many, "--plot", big).exit_code == 0
    assert b"data:image/png" in big.read_bytes()
    assert big.stat().st_size < 2 * first.stat().st_size + 500_000


def test_a_scenario_is_told_and_drawn_and_one_interleaving_is_played_alone(tmp_path: Path) -> None:
    file, picture = tmp_path / "two.yaml", tmp_path / "two.svg"
    file.write_text(SCENARIO.replace("{name: a,", "{name: a, times: 2,").replace("a: RUNNING", "a-1: RUNNING") + "interleavings: 40\n")
    whole = run(file)
    assert (whole.exit_code, "of 40 interleavings" in whole.output) == (1, True), whole.output
    assert run(file, "--interleavings", "1").exit_code == 0
    wrong = [line for line in whole.output.splitlines() if "(interleaving " in line]
    seed = wrong[0].partition("(interleaving ")[2].rstrip(")")
    again = run(file, "--seed", seed)
    assert (again.exit_code, "0 of 1 interleavings" in again.output) == (1, True)
    told = run(file, "--seed", "0", "--story", "--plot", picture)
    assert told.exit_code == 0
    assert "a-1  job.placed  (attempt 1, nodes n0)" in told.output
    assert "a-1" in picture.read_text()


def test_a_policy_may_have_a_table_from_a_file(log: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_bytes(files("shoal.scheduling.packing").joinpath("value_table.json").read_bytes())
    assert run(log, "--jobs", "5", "--policy", f"v:packing=value,packing_table={table}").exit_code == 0
    table.write_text("{}")
    for name, want in ((table, "not a value table"), (tmp_path / "none", "cannot be read")):
        result = run(log, "--jobs", "5", "--policy", f"v:packing=value,packing_table={name}")
        assert (result.exit_code, want in result.stderr) == (2, True), result.output


def test_options_that_would_have_no_effect_are_refused(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(SCENARIO)
    for words, want in (
        ((file, "--policy", "x"), "takes no --policy"),
        ((file, "--own-queues"), "takes no --own-queues"),
        ((log, "--story"), "takes no --story"),
    ):
        result = run(*words)
        assert (result.exit_code, want in result.stderr) == (2, True), result.output


def test_a_picture_of_another_kind_is_refused_before_anything_is_played(log: Path, tmp_path: Path) -> None:
    result = run(log, "--plot", tmp_path / "week.gif")
    assert (result.exit_code, ".png, .svg, .html" in result.output) == (2, True)


def test_a_gavel_trace_needs_its_throughputs(tmp_path: Path) -> None:
    trace, rates = tmp_path / "jobs.trace", tmp_path / "rates.json"
    trace.write_text("LM\tpython3 main.py\t--steps\t1\t250\t0\t2\nLM\tpython3 main.py\t--steps\t1\t500\t10\t2\n")
    rates.write_text("""{"a100": {"('LM', 2)": {"null": 5.0}}}""")
    result = run(trace, "--fleet", "1x2")
    assert (result.exit_code, "--throughputs" in result.output) == (2, True)
    answer = json.loads(run(trace, "--fleet", "1x2", "--throughputs", rates, "--gpu", "a100", "--json").stdout)
    assert (answer["jobs"], answer["runs"][0]["metrics"]["makespan_s"]) == (2, 150.0)
