"""What is measured on a record of use, and `--from-usage` on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.cli.main import shoal
from shoal.planning.trials.draws import normal
from shoal.planning.usage import FROM_USAGE, Usage, correlation_of, inputs_from, mean_of, rise_of, sd_of, swing_of, usage_of

HOUR = 3_600.0
DAYS = Usage(HOUR, ("all",), (tuple(60 + 40 * math.sin(2 * math.pi * h / 24) for h in range(240)),))
EXAMPLE = Path(__file__).parents[3] / "examples" / "planning" / "usage.csv"


def test_a_daily_swing_is_found() -> None:
    assert mean_of(DAYS.total) == pytest.approx(60)
    assert sd_of(DAYS.total) == pytest.approx(40 / math.sqrt(2))
    assert swing_of(DAYS) == pytest.approx(40)
    steepest = 40 * (math.sin(math.pi / 24) * 2) / HOUR
    assert rise_of(DAYS) == pytest.approx(steepest, rel=0.05)
    assert swing_of(Usage(HOUR, ("flat",), ((5.0,) * 48,))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_a_correlation_is_found(rho: float) -> None:
    rng = Rng(3)
    rows = []
    for _ in range(3_000):
        common = normal(rng)
        rows.append([50 + 5 * (math.sqrt(rho) * common + math.sqrt(1 - rho) * normal(rng)) for _ in range(4)])
    usage = Usage(HOUR, ("a", "b", "c", "d"), tuple(zip(*rows, strict=True)))
    assert correlation_of(usage) == pytest.approx(rho, abs=0.04)


def test_one_column_has_no_correlation() -> None:
    assert correlation_of(DAYS) == 0.0


@pytest.mark.parametrize(
    ("times", "series", "words"),
    [
        (list(range(10)), [1.0] * 10, "at least 24 rows"),
        ([*range(30), 99], [1.0] * 31, "fill gaps first"),
        ([0] * 30, [1.0] * 30, "is the step"),
        (list(range(30)), [1.0] * 29 + [-1.0], "negative"),
    ],
)
def test_a_record_that_is_none_is_refused(times: list[float], series: list[float], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        usage_of([float(time) for time in times], ("a",), (tuple(series),), "u.csv")


def test_a_question_that_takes_no_use_says_which_do() -> None:
    with pytest.raises(Invalid, match="mig takes no inputs from use; committed"):
        inputs_from("mig", DAYS)


def run(*words: str) -> Result:
    return CliRunner().invoke(shoal, ["plan", *words], prog_name="shoal")


MORE = {
    "committed": ["--committed-price", "1.5USD/GPU/h", "--on-demand-price", "3USD/GPU/h"],
    "committed_diurnal": ["--committed-price", "1.5USD/GPU/h", "--on-demand-price", "3USD/GPU/h"],
    "capacity_ladder": ["--committed", "1.5USD/GPU/h", "--on-demand", "3USD/GPU/h"],
    "reclaim": ["--delay-slo", "2s"],
}


@pytest.mark.parametrize("word", FROM_USAGE)
def test_every_such_question_answers_on_the_example(word: str) -> None:
    result = run(word, "--from-usage", str(EXAMPLE), *MORE.get(word, []), "--json")
    assert result.exit_code == 0, result.output
    assert "measured on 672 rows, 28.0 days" in result.stderr
    assert json.loads(result.stdout)["topic"] == word


def test_what_is_typed_goes_over_what_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "use.csv"
    file.write_text("time,a,b\n" + "".join(f"2026-01-0{1 + h // 24}T{h % 24:02}:00:00,{10 + h % 3},500 mGPU\n" for h in range(48)))
    result = run("pooling", "--from-usage", str(file), "--correlation", "0.5", "--json")
    assert result.exit_code == 0, result.output
    got = {number["name"]: number["value"] for number in json.loads(result.stdout)["numbers"]}
    assert got["utilisation_separate"] < 1
    assert run("mig", "--from-usage", str(file)).exit_code == 2
    file.write_text("time,a\nsoon,1\nlater,2\n")
    assert "is no time" in run("pooling", "--from-usage", str(file)).stderr
