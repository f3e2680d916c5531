"""`shoal plan` as a user types it: flags, files, tables, curves, variants, cases, refusals, and what it costs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planning_examples import EXAMPLES
from shoal.cli.main import shoal
from shoal.planning.catalogue import CATALOGUE

GANG = ["spot_gang", "--node-rate", "0.02/h", "--checkpoint", "1min", "--restart", "10min", "--discount", "60%"]


def run(*words: str) -> Result:
    return CliRunner().invoke(shoal, ["plan", *words], prog_name="shoal")


def answered(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert isinstance(record, dict)
    return record


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    return {number["name"]: number["value"] for number in record["numbers"]}


def flags_of(word: str) -> list[str]:
    flags = []
    for name, value in EXAMPLES[word].inputs.items():
        flags += [f"--{name.replace('_', '-')}", value if isinstance(value, str) else json.dumps(value)]
    return flags


@pytest.mark.parametrize("word", EXAMPLES)
def test_every_topic_answers_its_example_by_flags(word: str) -> None:
    result = run(word, *flags_of(word), "--explain")
    assert result.exit_code == 0, result.output
    assert "holds for " in result.output
    got = numbers(answered(word, *flags_of(word)))
    for name, want in EXAMPLES[word].want.items():
        assert got[name] == (
            list(want) if isinstance(want, tuple) else want if isinstance(want, bool | str) else pytest.approx(want, rel=1e-3)
        )


@pytest.mark.parametrize("word", EXAMPLES)
def test_every_topic_helps_with_its_inputs_and_units(word: str) -> None:
    result = run(word, "--help")
    assert result.exit_code == 0
    assert CATALOGUE[word].question[:30] in result.output
    assert f"shoal plan {word}" in result.output.partition("Examples:")[2]


def test_the_list_has_every_topic_under_its_group() -> None:
    text = run("list").output
    assert all(f"  {word} " in text and entry.group in text for word, entry in CATALOGUE.items())
    assert [row["topic"] for row in json.loads(run("list", "--json").stdout)] == list(CATALOGUE)


def test_a_file_gives_inputs_and_flags_go_over_it(tmp_path: Path) -> None:
    file = tmp_path / "gang.yaml"
    file.write_text("node_rate: 0.05/h\nnodes: 16\ncheckpoint: {value: 60, unit: s}\nrestart: 10min\ndiscount: 60%\n")
    assert numbers(answered("spot_gang", "--file", str(file)))["max_gang"] == 67
    assert numbers(answered("spot_gang", "--file", str(file), "--set", "node-rate=0.02/h", "--nodes", "64"))["max_gang"] == 168


def test_a_table_comes_from_csv_with_units_in_its_header(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,gpus,since_checkpoint [min],restart [s]\na,8,50,600\nb,8,5,600\n")
    assert numbers(answered("victim", "--need", "8", "--jobs", f"@{tmp_path}/jobs.csv"))["victims"] == ["b"]
    (tmp_path / "victim.yaml").write_text("need: 8\njobs: '@jobs.csv'\n")
    assert numbers(answered("victim", "--file", str(tmp_path / "victim.yaml")))["lost"] == pytest.approx(120)
    (tmp_path / "jobs.csv").write_text("id,gpus\na,8,50\n")
    assert run("victim", "--need", "8", "--jobs", f"@{tmp_path}/jobs.csv").exit_code == 2
    assert "cannot be read" in run("victim", "--need", "8", "--jobs", f"@{tmp_path}/none.csv").stderr


def test_an_explanation_has_formula_and_numbers() -> None:
    text = run(*GANG, "--nodes", "64", "--explain").output
    assert "= exp(-gang_rate * horizon)" in text
    assert "= exp(-1.28 1/h * 1 h)" in text


def test_a_curve_along_one_input() -> None:
    record = answered(*GANG, "--sweep", "nodes=1..128:8")
    assert record["unit"] == "1"
    ats = [point["at"] for point in record["points"]]
    assert ats == [1, 2, 4, 8, 16, 32, 64, 128]  # Wide ranges go by factors.
    costs = [next(n["value"] for n in point["answer"]["numbers"] if n["name"] == "relative_cost") for point in record["points"]]
    assert costs == sorted(costs)
    text = run(*GANG, "--nodes", "8", "--sweep", "restart=1..5 min:5").output
    assert text.splitlines()[0].split()[:2] == ["restart", "[min]"]
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["1", "2", "3", "4", "5"]


def test_a_curve_shows_where_it_is_refused() -> None:
    text = run("queue_wait", "--arrival-rate", "30/h", "--service-rate", "0.5/h", "--sweep", "servers=58..62:5").output
    assert [line.split()[1] == "unstable" for line in text.splitlines()[1:]] == [True, True, True, False, False]


@pytest.mark.parametrize("sweep", ["nodes", "nodes=4", "nodes=1..x", "speed=1..2", "horizon=1..2", "nodes=1..5:1"])
def test_a_curve_that_is_none_is_told(sweep: str) -> None:
    result = run(*GANG, "--nodes", "8", "--sweep", sweep)
    assert result.exit_code == 2
    assert "--sweep" in result.stderr


def test_variants_side_by_side() -> None:
    text = run(*GANG, "--nodes", "8", "--compare", "large: nodes=64", "--compare", "deep: nodes=64; discount=0.8").output
    assert text.splitlines()[0].split() == ["RESULT", "given", "large", "deep"]
    record = answered(*GANG, "--compare", "small: nodes=8", "--compare", "large: nodes=64")
    assert [variant["name"] for variant in record["variants"]] == ["small", "large"]
    assert run(*GANG, "--compare", "nonsense").exit_code == 2


def test_a_refusal_ends_with_1_and_unreadable_inputs_with_2() -> None:
    refused = run("gang_deadlock", "--cluster", "64", "--gang", "72")
    assert refused.exit_code == 1
    assert "gang_exceeds_cluster: a gang of 72 pods can never start on 64 GPUs" in refused.output
    unread = run("gang_deadlock", "--cluster", "64 nodes", "--gang", "many", "--json")
    assert unread.exit_code == 2
    assert [refusal["code"] for refusal in json.loads(unread.stdout)["refusals"]] == ["wrong_dimension", "not_a_number"]


def test_an_unknown_topic_is_wrong_usage() -> None:
    result = run("spot_gng")
    assert result.exit_code == 2
    assert "did you mean 'spot_gang'?" in result.stderr
    assert run("spot-gang", "--help").exit_code == 0


def test_cases_are_judged_one_by_one(tmp_path: Path) -> None:
    def cancel(name: str, result: str, **want: Any) -> dict[str, Any]:
        return {"id": name, "topic": "cancel_latency", "inputs": {"heartbeat": "10s", "grace": "30s"}, "expected": {result: want}}

    def gang(name: str, size: int) -> dict[str, Any]:
        refuse = {"refuse": {"value": True, "unit": "bool"}}
        return {"id": name, "topic": "gang_deadlock", "inputs": {"cluster": 8, "gang": size}, "expected": refuse}

    cases = [
        cancel("good", "latency", value=35, unit="s", rel_tol=0.001),
        cancel("unit", "latency", value=35 / 60, unit="min"),
        cancel("bad", "latency", value=36, unit="s"),
        cancel("none", "speed", value=1),
        {"id": "topic", "topic": "astrology", "inputs": {}, "expected": {"luck": {"value": 1}}},
        gang("refused", 9),
        gang("not-refused", 8),
    ]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases))
    result = run("check", str(file), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1]) == {"right": 3, "wrong": 4, "failed": ["bad", "none", "topic", "not-refused"]}
    text = run("check", str(file)).output
    assert "latency: want 36 s, got 35.0" in text
    assert text.splitlines()[-1] == "3 of 7 cases are right"


def test_a_plot_without_its_library_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['matplotlib'] = None\nsys.modules['matplotlib.figure'] = None\n"
        "from shoal.cli.main import shoal\n"
        f"shoal(['plan', 'ageing', '--gap', '9', '--gain', '1/min', '--plot', {str(tmp_path / 'a.png')!r}], prog_name='shoal')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "shoal[plots]" in done.stderr
    assert run("ageing", "--gap", "9", "--gain", "1/min", "--plot", "a.gif").exit_code == 2


@pytest.mark.slow
def test_an_answer_costs_little_and_loads_no_large_library() -> None:
    """Measured 0.17 s of CPU on two busy cores; the bound is the promise. The heaviest answers of the table stand for all."""
    for word in ("spot_gang", "mig", "backfill", "tensor_parallel"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = (
            "import sys\nfrom shoal.cli.main import shoal\ntry:\n    shoal(sys.argv[1:], prog_name='shoal')\nexcept SystemExit:\n    pass\n"
            "assert not {'numpy', 'scipy', 'matplotlib', 'ssl'} & set(sys.modules), sorted(sys.modules)\n"
        )
        words = [sys.executable, "-c", code, "plan", word, *flags_of(word)]
        subprocess.run(words, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3, word
