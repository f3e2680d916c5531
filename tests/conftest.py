"""
Shared by all tests: hypothesis runs without a deadline (two busy cores make single examples slow) and prints how to repeat a failure; in CI
it plays the same examples each time, so that what fails there is of the change, and searches at random everywhere else;
tests that need a service which is missing are left out with a word at the end, or fail in CI (see `services`).

`tests/` is on the path by this file's being here, so that helpers such as `serving` can be imported from every kind of test.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import settings

from services import STRICT, missing

settings.register_profile("shoal", deadline=None, print_blob=True)
settings.register_profile("shoal-ci", settings.get_profile("shoal"), derandomize=True)
settings.load_profile("shoal-ci" if STRICT else "shoal")

WANT = re.compile(r"service (.+) is missing: (.+)")
"""Why a test was left out, as its report says it: with workers, the process that sums up has seen nothing else of it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what cannot run here. Where several workers share the tests, those that may take longest begin, so that none is left alone."""
    if hasattr(config, "workerinput"):
        items.sort(key=_seconds_allowed, reverse=True)  # Stable: the rest keeps its order.
    for item in items:
        for mark in item.iter_markers("service"):
            name = mark.args[0]
            how = missing(name)
            if how is not None and not STRICT:
                item.add_marker(pytest.mark.skip(reason=f"service {name} is missing: {how}"))


def _seconds_allowed(item: pytest.Item) -> float:
    """What a test says that it may need; 0 for all that need no more than usual."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None else 0.0


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("service"):
        how = missing(mark.args[0])
        if how is not None and STRICT:
            pytest.fail(f"service {mark.args[0]} is missing and SHOAL_CI_STRICT=1: {how}", pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    """In CI a skip is a failure, whatever its reason."""
    report = (yield).get_result()
    if STRICT and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which SHOAL_CI_STRICT=1 forbids: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"left out: {len(skipped)} tests")
    wants = Counter(found.groups() for report in skipped if (found := WANT.search(str(report.longrepr[2]))) is not None)
    for (name, how), count in sorted(wants.items()):
        terminalreporter.write_line(f"{count} for want of {name} ({how})")
    terminalreporter.write_line("In CI (SHOAL_CI_STRICT=1) each of these would fail.")
