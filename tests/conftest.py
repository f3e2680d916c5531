"""
Shared by all tests: hypothesis runs without a deadline (two busy cores make single examples slow) and prints how to repeat a failure;
tests that need a service which is missing are left out with a word at the end, or fail in CI (see `services`).

`tests/` is on the path by this file's being here, so that helpers such as `serving` can be imported from every kind of test.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from services import STRICT, missing

settings.register_profile("shoal", deadline=None, print_blob=True)
settings.load_profile("shoal")

LEFT_OUT: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Finds out what is missing when tests are collected: every worker does that, and so does the process that reports."""
    for item in items:
        for mark in item.iter_markers("service"):
            name = mark.args[0]
            how = missing(name)
            if how is None:
                continue
            config.stash[LEFT_OUT].setdefault(f"{name} ({how})", []).append(item.nodeid)
            if not STRICT:
                item.add_marker(pytest.mark.skip(reason=f"service {name} is missing: {how}"))


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"left out: {len(skipped)} tests")
    for what, tests in sorted(config.stash[LEFT_OUT].items()):
        terminalreporter.write_line(f"{len(tests)} for want of {what}")
    terminalreporter.write_line("In CI (SHOAL_CI_STRICT=1) each of these would fail.")
