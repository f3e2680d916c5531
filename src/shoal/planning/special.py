"""
The special functions that planning needs: normal, Erlang, Poisson, Lambert W, harmonic numbers, binomials.

Ours because importing SciPy costs a command 0.4 to 0.8 s; tested against it. Plain Python: the longest loop is over servers or slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

SERVERS_MAX: Final = 1_000_000
"""Servers, slots or terms that a recursion goes over: more is a fleet of fleets, and a slip in a unit."""
_EXACT_BINOMIAL_MAX: Final = 3_000
_HARMONIC_SUM_MAX: Final = 10_000
_EULER: Final = 0.577215664901532861


def normal_pdf(z: float) -> float:
    """The density of the standard normal."""
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def normal_cdf(z: float) -> float:
    """P(Z <= z) of the standard normal."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


_A = (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02, 1.383577518672690e02, -3.066479806614716e01, 2.506628277459239e00)
_B = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02, 6.680131188771972e01, -1.328068155288572e01, 1.0)
_C = (
    -7.784894002430293e-03,
    -3.223964580411365e-01,
    -2.400758277161838e00,
    -2.549732539343734e00,
    4.374664141464968e00,
    2.938163982698783e00,
)
_D = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00, 1.0)


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def normal_quantile(p: float) -> float:
    """
    z with P(Z <= z) = p, for 0 < p < 1, to double precision.

    Acklam's rational approximation (relative error 1e-9), then two steps of Halley against `erfc`.
    """
    if not 0 < p < 1:
        raise ValueError(f"a quantile is of a probability between 0 and 1, got {p}")
    if p > 0.5:
        return -normal_quantile(1 - p) if p < 1 - 1e-9 else _upper_quantile(1 - p)
    return -_upper_quantile(p)


def _upper_quantile(q: float) -> float:
    """z with P(Z > z) = q, for 0 < q <= 0.5."""
    if q < 0.02425:
        t = math.sqrt(-2 * math.log(q))
        z = -_polynomial(_C, t) / _polynomial(_D, t)
    else:
        t = 0.5 - q
        z = t * _polynomial(_A, t * t) / _polynomial(_B, t * t)
    for _ in range(2):
        density = normal_pdf(z)
        if density <= 0:
            break
        u = (0.5 * math.erfc(z / math.sqrt(2)) - q) / density
        z += u / (1 - 0.5 * z * u)
    return z


def erlang_b(offered: float, servers: float) -> float:
    """
    The probability that an arrival finds all `servers` busy and is lost, at `offered` load (arrivals x mean hold).

    Whole servers by the usual recursion. A fractional number (Hayward's approximation) starts the recursion from its fractional part,
    where 1/B = integral of e^-u (1 + u/a)^c du.
    """
    if offered <= 0:
        return 0.0 if servers > 0 else 1.0
    whole = math.floor(servers)
    part = servers - whole
    blocked = 1.0 if part == 0 else 1.0 / _erlang_integral(offered, part)
    for at in range(1, min(whole, SERVERS_MAX) + 1):
        blocked = offered * blocked / (at + part + offered * blocked)
    return blocked


def _erlang_integral(offered: float, part: float) -> float:
    """The integral of e^-u (1 + u/a)^part over u >= 0, for 0 < part < 1, with u = t^2 so that small `offered` stays smooth."""
    return simpson(lambda t: math.exp(-t * t) * (1 + t * t / offered) ** part * 2 * t, 0.0, 6.5, 400)


def erlang_c(offered: float, servers: int) -> float:
    """The probability that an arrival waits, in M/M/c; 1 where the load is at or above the servers."""
    if offered >= servers:
        return 1.0
    blocked = erlang_b(offered, servers)
    return servers * blocked / (servers - offered * (1 - blocked))


def servers_for_blocking(offered: float, target: float, servers_max: int = SERVERS_MAX) -> int | None:
    """The fewest servers with `erlang_b` at most `target`; None above `servers_max`."""
    blocked = 1.0
    for servers in range(servers_max + 1):
        if servers:
            blocked = offered * blocked / (servers + offered * blocked)
        if blocked <= target:
            return servers
    return None


def servers_for_waiting(offered: float, target: float, servers_max: int = SERVERS_MAX) -> int | None:
    """The fewest servers with `erlang_c` at most `target`; None above `servers_max`."""
    blocked = 1.0
    for servers in range(1, servers_max + 1):
        blocked = offered * blocked / (servers + offered * blocked)
        if servers > offered and servers * blocked / (servers - offered * (1 - blocked)) <= target:
            return servers
    return None


def poisson_tail(mean: float, least: int) -> float:
    """P(N >= least) for N ~ Poisson(mean), without loss of small values."""
    if least <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    below = least <= mean
    start = least - 1 if below else least
    term = math.exp(start * math.log(mean) - mean - math.lgamma(start + 1))
    total, at = 0.0, start
    while term > 0 and at >= 0 and abs(at - start) < SERVERS_MAX:
        total += term
        if term < total * 1e-17:
            break
        term, at = (term * at / mean, at - 1) if below else (term * mean / (at + 1), at + 1)
    return min(1.0, 1 - total if below else total)


def slots_for_tail(mean: float, target: float, slots_max: int = SERVERS_MAX) -> int | None:
    """The fewest S with P(Poisson(mean) >= S) at most `target`; None above `slots_max`."""
    if target >= 1:
        return 0
    low, high = 0, 1
    while poisson_tail(mean, high) > target:
        low, high = high, high * 2
        if high > 2 * slots_max:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if poisson_tail(mean, middle) <= target else (middle, high)
    return high if high <= slots_max else None


def lambert_w(x: float) -> float:
    """W with W e^W = x on the principal branch, for x >= -1/e, to double precision."""
    edge = math.e * x + 1
    if edge < -1e-12:
        raise ValueError(f"Lambert's W is real from -1/e on, got {x}")
    if edge <= 1e-14:
        return -1.0
    if x < 0.5:
        p = math.sqrt(2 * edge)
        w = -1 + p - p * p / 3 + 11 * p**3 / 72 if x < 0 else x / (1 + x)
    else:
        w = math.log(x) - math.log(math.log(x)) if x > math.e else 0.6 * x / (1 + 0.2 * x)
    for _ in range(40):
        exponential = math.exp(w)
        error = w * exponential - x
        step = error / (exponential * (w + 1) - (w + 2) * error / (2 * w + 2))
        w -= step
        if abs(step) <= 1e-15 * (1 + abs(w)):
            break
    return w


def harmonic(n: int) -> float:
    """1 + 1/2 + ... + 1/n."""
    if n <= _HARMONIC_SUM_MAX:
        return math.fsum(1 / k for k in range(1, n + 1))
    return math.log(n) + _EULER + 1 / (2 * n) - 1 / (12 * n * n)


def log_binomial(n: int, k: int) -> float:
    """The logarithm of "n choose k"; minus infinity outside 0 <= k <= n."""
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def binomial_ratio(top: tuple[int, int], bottom: tuple[int, int]) -> float:
    """C(top) / C(bottom), exact while the numbers are small, by logarithms above; may underflow to 0."""
    if max(top[0], bottom[0]) <= _EXACT_BINOMIAL_MAX:
        upper = math.comb(*top) if 0 <= top[1] <= top[0] else 0
        return upper / math.comb(*bottom)
    return math.exp(log_binomial(*top) - log_binomial(*bottom))


def simpson(f: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """The integral of `f` by Simpson's rule over an even number of `steps`."""
    width = (high - low) / steps
    inner = math.fsum((4 if at % 2 else 2) * f(low + at * width) for at in range(1, steps))
    return (f(low) + inner + f(high)) * width / 3


def root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone `f` changes sign between `low` and `high`, by bisection to double precision."""
    rising = f(high) > 0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if (f(middle) > 0) == rising:
            high = middle
        else:
            low = middle
    return (low + high) / 2
