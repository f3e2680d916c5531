"""
The house rules that a program can check: sizes, names, words where they are due, limits with reasons, nothing of one machine.

Each rule's reason stands at its test. Exceptions are named below, with why; a test fails when one is not needed any more, so the lists
only shrink.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shoal"

MODULE_LINES_ASK, MODULE_LINES_MAX = 500, 700
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
LINES_WITHOUT_WORDS_MAX = 5
"""A public function or class up to this long may be said by its name alone."""

LONG_MODULES: dict[str, str] = {
    "src/shoal/api/table.py": "one row per operation of the API: cutting the table in two would hide what is missing from it",
}
MANY_PARAMETERS: dict[str, str] = {}
WITHOUT_WORDS: dict[str, str] = {}

BANNED_WORDS = {"manager", "helper", "helpers", "util", "utils", "info", "data", "common", "misc"}
"""Names that say nothing: if only such a one fits, the thing has no single job yet."""
BANNED_MODULES = BANNED_WORDS | {"process"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tracked() -> tuple[Path, ...]:
    """Files that are or will be in the repository; outside a clone, all that lies here but the virtual environment."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        return tuple(path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file())
    return tuple(path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts)


def python_files(*folders: str) -> list[Path]:
    wanted = [ROOT / folder for folder in folders or ("src", "tests", "bench", "tools", "examples")]
    return sorted(path for path in tracked() if path.suffix == ".py" and any(folder in path.parents for folder in wanted))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path, *inside: str) -> str:
    return "::".join([path.relative_to(ROOT).as_posix(), *inside])


@cache
def functions_in(path: Path) -> tuple[tuple[str, Function], ...]:
    """Every function of a file with its name inside the file, nested ones too. Looks into statements only: expressions hold no `def`."""

    def walk(node: ast.AST, above: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield ".".join((*above, child.name)), child
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                deeper = (*above, child.name) if isinstance(child, Function | ast.ClassDef) else above
                yield from walk(child, deeper)

    return tuple(walk(tree_of(path), ()))


def lines_of(node: Function | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def shrinking(found: dict[str, str], exceptions: dict[str, str], rule: str) -> None:
    """`found` breaks the rule except where an exception says why; an exception for nothing must go."""
    new = {name: why for name, why in found.items() if name not in exceptions}
    assert not new, f"{rule}: " + "; ".join(f"{name} ({why})" for name, why in sorted(new.items()))
    stale = sorted(set(exceptions) - set(found))
    assert not stale, f"exceptions from '{rule}' that are not needed any more, take them out: {', '.join(stale)}"


def test_modules_have_a_size_that_one_can_hold_in_mind() -> None:
    """A file of tests is read one test at a time, so only the upper bound holds for it."""
    lines = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in python_files()}
    over = {name: f"{count} lines" for name, count in lines.items() if count > MODULE_LINES_MAX}
    assert not over, f"over {MODULE_LINES_MAX} lines, without exception: {over}"
    asked = {name: f"{count} lines" for name, count in lines.items() if count > MODULE_LINES_ASK and name.startswith("src/")}
    shrinking(asked, LONG_MODULES, f"modules over {MODULE_LINES_ASK} lines need a reason")


def test_functions_fit_on_a_screen() -> None:
    found = {
        name_of(path, name): f"{lines_of(node)} lines"
        for path in python_files()
        for name, node in functions_in(path)
        if lines_of(node) > FUNCTION_LINES_MAX
    }
    assert not found, f"functions over {FUNCTION_LINES_MAX} lines: {found}"


def test_functions_take_few_parameters() -> None:
    """More than six and the caller is passing a record in pieces."""
    found: dict[str, str] = {}
    for path in python_files():
        for name, node in functions_in(path):
            all_of_them = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in all_of_them)
            if count > PARAMETERS_MAX:
                found[name_of(path, name)] = f"{count} parameters"
    shrinking(found, MANY_PARAMETERS, f"functions take at most {PARAMETERS_MAX} parameters, then a record")


def words_in(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_names_say_what_a_thing_is_for() -> None:
    found = []
    for path in python_files("src"):
        for part in path.relative_to(SOURCE).with_suffix("").parts:
            if words_in(part) & BANNED_MODULES:
                found.append(name_of(path))
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and words_in(node.name) & BANNED_WORDS:
                found.append(name_of(path, node.name))
    assert not found, f"banned words in names: {found}"


def test_what_is_public_is_documented() -> None:
    """Every module, and every public class and function that is too long to be said by its name. A header speaks for its only class."""
    found: dict[str, str] = {}
    for path in python_files("src"):
        tree = tree_of(path)
        if tree.body and ast.get_docstring(tree) is None:
            found[name_of(path)] = "module"
        public = [node for node in tree.body if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")]
        classes = [node for node in public if isinstance(node, ast.ClassDef)]
        for node in public:
            if ast.get_docstring(tree) is not None and classes == [node]:
                continue
            if path.parent == SOURCE / "api" and isinstance(node, Function) and [one.arg for one in node.args.args] == ["call"]:
                continue  # An operation's handler: its row in `api.table` says what it does.
            if ast.get_docstring(node) is None and lines_of(node) > LINES_WITHOUT_WORDS_MAX:
                found[name_of(path, node.name)] = f"{lines_of(node)} lines"
    shrinking(found, WITHOUT_WORDS, "public means documented")


def limit_names() -> list[str]:
    tree = tree_of(SOURCE / "base" / "limits.py")
    return [node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]


def test_every_limit_has_its_reason() -> None:
    """A bound that nobody can explain is raised by the first who meets it. One reason may cover the lines directly above it."""
    body = tree_of(SOURCE / "base" / "limits.py").body
    waiting: list[str] = []
    without: list[str] = []
    last_line = 0
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.lineno > last_line + 1:
                without += waiting
                waiting = []
            waiting.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            waiting = []
        last_line = node.end_lineno or node.lineno
    assert not without + waiting, f"limits without a reason under them: {without + waiting}"


def test_every_limit_is_used() -> None:
    """A limit that nothing reads limits nothing."""
    names = set(limit_names())
    texts = (path.read_text(encoding="utf-8") for path in python_files("src") if path != SOURCE / "base" / "limits.py")
    used = {name for text in texts for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", text) if name in names}
    assert not names - used, f"limits that nothing reads: {sorted(names - used)}"


def test_unfinished_work_names_its_issue() -> None:
    """Written with a number, `TODO(#12)`, it can be found and closed; without, it stays for ever."""
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|HA" + r"CK)\b(?!\(#\d+\))")
    found = [
        f"{name_of(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if mark.search(line)
    ]
    assert not found, f"marks of unfinished work without an issue: {found}"


def text_files() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_nothing_names_a_machine_or_a_package_index() -> None:
    """A path or a host that only one machine has breaks on the next one, and locks say what to install, not from where."""
    index = (
        r"--(extra-)?index-" + r"url|py" + r"pi\.org|python" + r"hosted\.org|--find-" + r"links[ =]|registry\.npm" + r"js|deb\.deb" + r"ian"
    )
    here = re.escape(str(ROOT)) + r"\b"
    machine = re.compile(f"{index}|{here}")
    found = [f"{name_of(path)}: {match[0]}" for path, text in text_files() if (match := machine.search(text))]
    assert not found, f"these name a machine or an index: {found}"


@pytest.mark.service("git")
def test_tests_are_left_out_only_for_a_service() -> None:
    """`pytest.mark.service` says at the end of the run what was left out and fails in CI; other skips stay silent."""
    silent = re.compile(r"(pytest\.|mark\.)(skip|xfail)(if)?\b|import" + r"orskip")
    allowed = {ROOT / "tests" / "conftest.py", Path(__file__)}
    found = [
        f"{name_of(path)}:{text[: match.start()].count(chr(10)) + 1}"
        for path, text in text_files()
        if path.suffix == ".py" and ROOT / "tests" in path.parents and path not in allowed
        for match in silent.finditer(text)
    ]
    assert not found, f"skips without a service: {found}"
