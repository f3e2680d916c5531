"""Ignore rules read as git reads them. Each right answer below is also asked of git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shoal.formats.ignore import ALWAYS, IgnoreRules

CASES = [
    ("*.pyc", "a.pyc", False, True),
    ("*.pyc", "deep/er/a.pyc", False, True),
    ("*.pyc", "a.pyc.txt", False, False),
    ("/data", "data", True, True),
    ("/data", "sub/data", True, False),
    ("data/", "data", True, True),
    ("data/", "data", False, False),
    ("data/", "sub/data", True, True),
    ("a/b", "a/b", False, True),
    ("a/b", "x/a/b", False, False),
    ("**/logs", "x/y/logs", True, True),
    ("**/logs", "logs", True, True),
    ("logs/**", "logs/a/b", False, True),
    ("logs/**", "logs", True, False),
    ("a/**/b", "a/b", False, True),
    ("a/**/b", "a/x/y/b", False, True),
    ("run?.txt", "run1.txt", False, True),
    ("run?.txt", "run/.txt", False, False),
    ("[a-c].txt", "b.txt", False, True),
    ("[!a-c].txt", "b.txt", False, False),
    ("[!a-c].txt", "d.txt", False, True),
    ("[a", "[a", False, False),
    ("[z-a]", "b", False, False),
    ("# comment", "# comment", False, False),
    ("\\#real", "#real", False, True),
    ("\\!real", "!real", False, True),
    ("trailing   ", "trailing", False, True),
    ("a.b", "axb", False, False),
    ("*", "anything", False, True),
]


@pytest.mark.parametrize(("rule", "path", "is_directory", "want"), CASES)
def test_one_rule(rule: str, path: str, is_directory: bool, want: bool) -> None:
    assert IgnoreRules([rule]).ignores(path, is_directory=is_directory) is want


def test_the_last_rule_that_matches_decides() -> None:
    rules = IgnoreRules(["*.log", "!keep.log", "/tmp/"])
    assert rules.ignores("a.log", is_directory=False)
    assert not rules.ignores("keep.log", is_directory=False)
    assert not IgnoreRules([*ALWAYS, "!__pycache__/"]).ignores("__pycache__", is_directory=True)


@pytest.mark.parametrize(("rule", "path", "is_directory", "want"), CASES)
def test_git_says_the_same(tmp_path: Path, rule: str, path: str, is_directory: bool, want: bool) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(f"{rule}\n")
    thing = tmp_path / path
    thing.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        thing.mkdir()
    else:
        thing.write_text("")
    found = subprocess.run(["git", "-C", str(tmp_path), "check-ignore", "-q", "--", path], check=False)
    assert (found.returncode == 0) is want
