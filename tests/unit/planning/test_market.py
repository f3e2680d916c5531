"""What is measured on spot prices and on the lives of spot nodes, and their flags on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.base.errors import Invalid
from shoal.base.rng import Rng
from shoal.cli.main import shoal
from shoal.planning.market import Life, gang_rate_of, inputs_from_prices, lives_of, prices_of, rate_of

HOUR = 3_600.0
EXAMPLES = Path(__file__).parents[3] / "examples" / "planning"
GANG = ("plan", "spot_gang", "--nodes", "8", "--checkpoint", "1min", "--restart", "10min")


def run(*words: str) -> Result:
    return CliRunner().invoke(shoal, words, prog_name="shoal")


def fleet(rng: Rng, slots: int, hours: float, rate_per_h: float, wave: int) -> tuple[Life, ...]:
    """Slots that are refilled at once; events by chance at `rate_per_h` of the fleet, each taking `wave` of its nodes."""
    since, lives, now = [0.0] * slots, list[Life](), 0.0
    while True:
        now += -math.log(1 - rng.unit()) / rate_per_h * HOUR
        if now > hours * HOUR:
            return (*lives, *(Life(start, hours * HOUR, False) for start in since))
        for slot in picked(rng, slots, wave):
            lives.append(Life(since[slot], now, True))
            since[slot] = now + 1e-6


def picked(rng: Rng, slots: int, wave: int) -> list[int]:
    order = list(range(slots))
    rng.shuffle(order)
    return order[:wave]


def test_a_price_counts_for_as_long_as_it_held() -> None:
    prices = prices_of([0, HOUR, 4 * HOUR], [1.0, 2.0, 9.0], [], "here")
    assert prices.mean == pytest.approx((1 * 1 + 2 * 3) / 4)
    assert inputs_from_prices("spot_gang", prices, 3.5, "here") == {"discount": pytest.approx(0.5)}
    assert inputs_from_prices("spot_deadline", prices, 3.5, "here") == {"price_ratio": pytest.approx(2.0)}
    with pytest.raises(Invalid, match="on-demand-price"):
        inputs_from_prices("spot_gang", prices, None, "here")


@pytest.mark.parametrize(
    ("times", "spot", "words"),
    [([0], [1.0], "at least 2"), ([0, 0], [1.0, 1.0], "different times"), ([0, 9, 5], [1.0] * 3, "row 4"), ([0, 9], [1.0, 0.0], "zero")],
)
def test_prices_that_say_nothing_are_refused(times: list[float], spot: list[float], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        prices_of(times, spot, [], "here")


def test_lives_that_say_nothing_are_refused() -> None:
    with pytest.raises(Invalid, match="at least 5"):
        lives_of([Life(0, 1, True)] * 4 + [Life(0, 1, False)] * 9, "here")
    with pytest.raises(Invalid, match="row 3"):
        lives_of([Life(0, 1, True), Life(2, 1, True)], "here")


@pytest.mark.parametrize("wave", [1, 4])
def test_the_rates_behind_made_up_lives_are_found(wave: int) -> None:
    """Events at 0.5/h on 16 slots: a node goes at 0.5 wave / 16 an hour; a gang of 8 is hit unless all that go are among the other 8."""
    lives = fleet(Rng(11), 16, 4_000, 0.5, wave)
    assert rate_of(lives) * HOUR == pytest.approx(0.5 * wave / 16, rel=0.1)
    spared = math.comb(8, wave) / math.comb(16, wave)
    together = gang_rate_of(lives, 8)
    assert together is not None
    assert together * HOUR == pytest.approx(0.5 * (1 - spared), rel=0.1)
    assert gang_rate_of(lives, 17) is None


def test_waves_make_a_gang_safer_than_independence_says() -> None:
    lives = fleet(Rng(12), 16, 4_000, 0.25, 8)
    assert (gang_rate_of(lives, 8) or 0) < 0.6 * 8 * rate_of(lives)


def test_the_examples_answer_by_their_flags() -> None:
    prices, nodes = str(EXAMPLES / "spot-prices.csv"), str(EXAMPLES / "spot-nodes.csv")
    result = run(*GANG, "--from-prices", prices, "--from-interruptions", nodes, "--json")
    assert result.exit_code == 0, result.output
    assert "event_rate" in result.stderr
    assert "discount" in result.stderr
    named = {number["name"]: number["value"] for number in json.loads(result.stdout)["numbers"]}
    by_hand = run(*GANG, "--node-rate", "0.02/h", "--from-prices", prices, "--on-demand-price", "4USD/GPU/h")
    assert by_hand.exit_code == 2  # the gang's question has no price of its own, and says so
    assert 0 < named["gang_rate"] < 8 * 0.0179


def test_old_prices_are_refused_until_somebody_agrees(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("time,spot [USD/GPU/h],on_demand [USD/GPU/h]\n2024-01-01T00:00:00+00:00,1.5,3\n2024-03-01T00:00:00+00:00,1.5,3\n")
    flags = (*GANG, "--node-rate", "0.02/h", "--from-prices", str(file))
    refused = run(*flags)
    assert refused.exit_code == 2
    assert "--old-prices" in refused.stderr
    assert run(*flags, "--old-prices").exit_code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("start [h],end [h]\n0,1\n", "lost"),
        ("start [h],end [h],lost\n0,1\n", "as many values"),
        ("start [h],end [h],lost\n0,1,perhaps\n", "row 2: lost"),
        ("start [GB],end [h],lost\n0,1,yes\n", "row 2: start"),
        ("", "start, end, lost"),
    ],
)
def test_a_broken_file_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(text)
    result = run(*GANG, "--discount", "60%", "--from-interruptions", str(file))
    assert result.exit_code == 2
    assert words in result.stderr
