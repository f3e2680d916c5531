"""Our special functions against SciPy's, over their whole range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from shoal.planning import special as ours


@pytest.mark.parametrize("p", [1e-300, 1e-12, 1e-4, 0.02, 0.024251, 0.3, 0.5, 0.7, 0.97, 0.99, 0.999999, 1 - 1e-12])
def test_normal_quantile(p: float) -> None:
    assert ours.normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("z", [-37.0, -8.0, -1.0, 0.0, 0.5, 3.0, 8.0])
def test_normal_cdf_and_density(z: float) -> None:
    assert ours.normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12)
    assert ours.normal_pdf(z) == pytest.approx(stats.norm.pdf(z), rel=1e-12)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_no_quantile_outside_of_probabilities(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        ours.normal_quantile(p)


def erlang_by_poisson(offered: float, servers: int) -> float:
    return float(stats.poisson.pmf(servers, offered) / stats.poisson.cdf(servers, offered))


@pytest.mark.parametrize(("offered", "servers"), [(0.1, 1), (12.0, 12), (12.0, 20), (120.0, 138), (500.0, 520), (3.0, 0)])
def test_erlang_b_for_whole_servers(offered: float, servers: int) -> None:
    assert ours.erlang_b(offered, servers) == pytest.approx(erlang_by_poisson(offered, servers), rel=1e-10)


@pytest.mark.parametrize(("offered", "servers"), [(6.0, 10.5), (6.0, 0.25), (0.3, 0.5), (40.0, 45.7), (2.0, 5.999)])
def test_erlang_b_for_a_fraction_of_a_server(offered: float, servers: float) -> None:
    inverse, _ = integrate.quad(lambda u: math.exp(-u + servers * math.log1p(u / offered)), 0, np.inf)
    assert ours.erlang_b(offered, servers) == pytest.approx(1 / inverse, rel=1e-6)


@pytest.mark.parametrize(("offered", "servers"), [(12.0, 19), (56.0, 64), (0.5, 1), (9.9, 10)])
def test_erlang_c(offered: float, servers: int) -> None:
    terms = [math.exp(k * math.log(offered) - math.lgamma(k + 1)) for k in range(servers + 1)]
    last = terms[-1] * servers / (servers - offered)
    assert ours.erlang_c(offered, servers) == pytest.approx(last / (math.fsum(terms[:-1]) + last), rel=1e-10)
    assert ours.erlang_c(servers, servers) == 1.0


@pytest.mark.parametrize(("offered", "target"), [(12.0, 0.01), (120.0, 0.01), (0.5, 0.2), (7.0, 1.0)])
def test_the_fewest_servers_are_enough_and_one_less_is_not(offered: float, target: float) -> None:
    lost, waiting = ours.servers_for_blocking(offered, target), ours.servers_for_waiting(offered, target)
    assert lost is not None
    assert waiting is not None
    assert ours.erlang_b(offered, lost) <= target
    assert lost == 0 or ours.erlang_b(offered, lost - 1) > target
    assert ours.erlang_c(offered, waiting) <= target
    assert waiting - 1 <= offered or ours.erlang_c(offered, waiting - 1) > target
    assert ours.servers_for_blocking(offered, 1e-9, servers_max=2) is None


@pytest.mark.parametrize(("mean", "least"), [(12.0, 22), (12.0, 12), (12.0, 0), (0.01, 3), (400.0, 300), (400.0, 520), (0.0, 1)])
def test_poisson_tail(mean: float, least: int) -> None:
    assert ours.poisson_tail(mean, least) == pytest.approx(stats.poisson.sf(least - 1, mean), rel=1e-9)


@pytest.mark.parametrize(("mean", "target"), [(12.0, 0.01), (200.0, 0.001), (0.2, 0.5), (12.0, 1.0)])
def test_slots_for_a_tail(mean: float, target: float) -> None:
    slots = ours.slots_for_tail(mean, target)
    assert slots is not None
    assert ours.poisson_tail(mean, slots) <= target
    assert slots == 0 or ours.poisson_tail(mean, slots - 1) > target


@pytest.mark.parametrize("x", [-0.36787, -0.3, -0.1, -1e-9, 0.0, 1e-6, 0.4, 0.6, 1.0, 3.0, 1e3, 1e200])
def test_lambert_w(x: float) -> None:
    assert ours.lambert_w(x) == pytest.approx(special.lambertw(x).real, rel=1e-9, abs=1e-12)


def test_lambert_w_is_real_from_its_edge_on() -> None:
    assert ours.lambert_w(-1 / math.e) == -1.0
    with pytest.raises(ValueError, match="from -1/e on"):
        ours.lambert_w(-0.4)


@pytest.mark.parametrize("n", [0, 1, 64, 10_000, 10_001, 10**7])
def test_harmonic(n: int) -> None:
    assert ours.harmonic(n) == pytest.approx(special.digamma(n + 1) + np.euler_gamma if n else 0.0, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize(("top", "bottom"), [((252, 64), (256, 64)), ((60_000, 30), (64_000, 30)), ((3, 5), (9, 5))])
def test_ratio_of_binomials(top: tuple[int, int], bottom: tuple[int, int]) -> None:
    exact = math.comb(*top) / math.comb(*bottom)
    assert ours.binomial_ratio(top, bottom) == pytest.approx(exact, rel=1e-6)


def test_simpson_and_root() -> None:
    assert ours.simpson(math.sin, 0, math.pi, 200) == pytest.approx(2, rel=1e-8)
    assert ours.root(lambda x: x * x - 2, 0, 2) == pytest.approx(math.sqrt(2), rel=1e-15)
    assert ours.root(lambda x: 2 - x * x, 0, 2) == pytest.approx(math.sqrt(2), rel=1e-15)
