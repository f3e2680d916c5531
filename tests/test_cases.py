"""docs/explanation/cases.md: every test that it names exists and says which case it is; every test that says so is named there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "cases.md"
WANTED = (3, 9, 13, 16, 19, 22, 23, 29, 35, 36, 38, 39, 40, 43)
"""Cases that must never be without a test."""
Named = tuple[int, str]
"""A case and a test, as `path::name`."""


def named_on_the_page() -> list[Named]:
    rows = re.findall(r"^\| (\d+) \|.*\| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(int(case), test.strip("`")) for case, tests in rows for test in tests.split(", ")]


def claimed_by_tests() -> list[Named]:
    found: list[Named] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = re.match(r"Platform case (\d+)", ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef) else None
            if said is not None and isinstance(node, ast.FunctionDef):
                found.append((int(said[1]), f"{path.relative_to(ROOT).as_posix()}::{node.name}"))
    return found


def test_the_page_names_exactly_the_tests_that_say_so() -> None:
    page, tests = named_on_the_page(), claimed_by_tests()
    assert [case for case, _ in page] == sorted(case for case, _ in page)
    assert sorted(set(page) - set(tests)) == [], "named, and there is no such test, or it does not say which case it is"
    assert sorted(set(tests) - set(page)) == [], "a test says which case it is, and the page does not name it"


@pytest.mark.parametrize("case", WANTED)
def test_a_case_has_a_test_that_a_search_finds(case: int) -> None:
    files = {test.partition("::")[0] for number, test in named_on_the_page() if number == case}
    assert files
    assert all(f"case {case}" in (ROOT / name).read_text(encoding="utf-8") for name in files)
