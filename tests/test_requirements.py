"""Locks say exactly what `pyproject.toml` asks for, with hashes and not where it was found; no dependency is there for nothing."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
CORE_PACKAGES_MAX = 40
IMPORTED_AS = {"nvidia-ml-py": "pynvml", "pyyaml": "yaml"}
LOADED_BY_NAME = {"httptools": 'uvicorn reads requests with it: `http="httptools"`'}
"""Needed although no line imports them, with why."""

with (ROOT / "pyproject.toml").open("rb") as file:
    PROJECT = tomllib.load(file)
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def plain(requirement: str) -> str:
    """The name of a requirement, as the index compares names."""
    name = re.split(r"[\s\[<>=!~;]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[str, str]:
    text = (LOCKS / f"{lock}.txt").read_text(encoding="utf-8")
    return {plain(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)}


def asked(lock: str) -> set[str]:
    if lock == "build":
        return {plain(one) for one in PROJECT["build-system"]["requires"]}
    return {plain(one) for one in PROJECT["project"]["dependencies"] + EXTRAS.get(lock, [])}


@pytest.mark.parametrize("lock", ["core", "build", *EXTRAS])
def test_a_lock_has_what_is_asked_for_and_marks_it_so(lock: str) -> None:
    text = (LOCKS / f"{lock}.txt").read_text(encoding="utf-8")
    direct = {
        plain(block.split("==")[0])
        for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
        if "shoal (pyproject.toml" in block
    }
    assert direct == asked(lock), "run `make lock`"


@pytest.mark.parametrize("lock", sorted(path.stem for path in LOCKS.glob("*.txt")))
def test_every_line_of_a_lock_is_a_pin_with_hashes(lock: str) -> None:
    text = (LOCKS / f"{lock}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        assert re.fullmatch(r"#.*| {4,}#.*|\S+==\S+ \\| {4}--hash=sha256:[0-9a-f]{64}( \\)?|", line), line
        assert "/" not in line.removesuffix("-c requirements/core.txt"), f"a path or an address in {lock}.txt: {line}"
    assert len(re.findall(r"^\S+==", text, re.MULTILINE)) == len(re.findall(r"^\S+==.*\\\n +--hash", text, re.MULTILINE))


@pytest.mark.parametrize("lock", sorted(EXTRAS))
def test_locks_agree_with_the_core(lock: str) -> None:
    """So that an extra can be added to an installed core without moving anything."""
    core, other = pins("core"), pins(lock)
    assert {name: other.get(name) for name in core} == core


def test_the_core_stays_small() -> None:
    assert len(pins("core")) <= CORE_PACKAGES_MAX


def test_every_direct_dependency_earns_its_place() -> None:
    imported: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
    unused = {name for name in asked("core") if IMPORTED_AS.get(name, name) not in imported and name not in LOADED_BY_NAME}
    assert not unused, f"dependencies that nothing imports: {sorted(unused)}"
    assert not {name for name in LOADED_BY_NAME if name in imported}
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8")
    untold = {name for name in asked("core") if f"| `{name}` |" not in page}
    assert not untold, f"docs/reference/dependencies.md does not say why these are needed: {sorted(untold)}"
