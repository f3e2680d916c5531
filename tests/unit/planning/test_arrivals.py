"""What is measured on a trace of arrivals, and `--from-trace` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.cli.main import shoal
from shoal.planning.arrivals import FROM_TRACE, dispersion_of, inputs_from_arrivals, rate_of
from shoal.planning.trials.draws import exponential


def poisson(rate: float, count: int, copies: int = 1) -> list[float]:
    """Arrivals by chance, each of them `copies` together."""
    rng, now, times = Rng(11), 0.0, list[float]()
    for _ in range(count):
        now += exponential(rng, copies / rate)
        times += [now] * copies
    return times


def test_rate_and_bursts_are_found() -> None:
    assert rate_of(poisson(0.2, 5_000)) == pytest.approx(0.2, rel=0.05)
    assert dispersion_of(poisson(0.2, 5_000), 60) == 1.0  # No more than chance.
    assert dispersion_of(poisson(0.2, 5_000, copies=4), 60) == pytest.approx(4, rel=0.15)
    assert dispersion_of([float(at) for at in range(2_000)], 50) < 0.1  # A clock is steadier than chance.


def test_a_trace_that_says_too_little_is_refused() -> None:
    with pytest.raises(Invalid, match="at least 30"):
        inputs_from_arrivals("keep_alive", [1.0, 2.0], None, "t.csv")
    with pytest.raises(Invalid, match="at least 30"):
        inputs_from_arrivals("keep_alive", [1.0] * 50, None, "t.csv")
    with pytest.raises(Invalid, match="windows of 600 s"):
        dispersion_of([float(at) for at in range(100)], 600)
    with pytest.raises(Invalid, match="mig takes no inputs from arrivals; warm_pool"):
        inputs_from_arrivals("mig", poisson(1, 50), None, "t.csv")


def run(*words: str) -> Result:
    return CliRunner().invoke(shoal, ["plan", *words], prog_name="shoal")


MORE = {
    "warm_pool": ["--refill-time", "60s"],
    "keep_alive": ["--keep-alive", "15min", "--cold-latency", "40s"],
    "replicas": ["--service-rate", "4/s"],
    "false_ready": ["--replicas", "3"],
    "queue_wait": ["--service-rate", "0.1/s", "--servers", "20"],
    "ray_idle": [],
}


@pytest.mark.parametrize("word", FROM_TRACE)
def test_every_such_question_answers(word: str, tmp_path: Path) -> None:
    file = tmp_path / "starts.csv"
    file.write_text("time [s],who\n" + "".join(f"{time:.3f},a\n" for time in poisson(0.2, 1_500, copies=4)))
    result = run(word, "--from-trace", str(file), *MORE[word], "--json")
    assert result.exit_code == 0, result.output
    assert "measured on 6000 arrivals: " in result.stderr
    if word == "warm_pool":
        notes = json.loads(result.stdout)["notes"]
        assert any("Hayward" in note for note in notes)


def test_bursts_need_a_larger_pool(tmp_path: Path) -> None:
    sizes = []
    for copies in (1, 4):
        file = tmp_path / "starts.csv"
        file.write_text("time [min]\n" + "".join(f"{time / 60:.6f}\n" for time in poisson(0.2, 6_000 // copies, copies)))
        record = json.loads(run("warm_pool", "--from-trace", str(file), "--start-rate", "0.2/s", "--refill-time", "1min", "--json").stdout)
        sizes.append(next(number["value"] for number in record["numbers"] if number["name"] == "pool_loss"))
    assert sizes[0] == 20
    assert sizes[1] > 26
