"""
Which files of a directory do not travel with a job: the rules of `.shoalignore` and `.gitignore` files, in one file at its root.

What is read, as git reads it: `#` comments, `!` takes back, a trailing `/` means directories, a `/` elsewhere ties the rule to the root,
`*` and `?` stay within a name, `[a-z]` and `[!a-z]` are sets, `**` crosses directories, the last rule that matches decides. What is
not: rule files in subdirectories, and git's global excludes. As in git, nothing under an ignored directory can be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ALWAYS = (".git/", "__pycache__/", ".hg/", ".svn/")
"""History and compiled files: large, and never what a job needs. A `!` rule takes them back."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    takes_back: bool
    only_directories: bool


class IgnoreRules:
    """Rules in order; `ignores` says if a path is left out."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """True if `path` (relative to the root, with `/`) is left out by itself; a parent that is left out is the caller's to skip."""
        left_out = False
        for rule in self._rules:
            if (is_directory or not rule.only_directories) and rule.pattern.fullmatch(path):
                left_out = not rule.takes_back
        return left_out


def _rule(line: str) -> _Rule | None:
    text = line.rstrip("\r\n")
    # A trailing blank is meant only with a backslash before it.
    text = text[:-2] + " " if text.endswith("\\ ") else text.rstrip()
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text.removeprefix("\\") if text.startswith(("\\#", "\\!")) else text
    only_directories = text.endswith("/")
    text = text.rstrip("/") if only_directories else text
    if not text:
        return None
    tied = "/" in text
    body = _regex(text.lstrip("/"))
    return _Rule(re.compile(body if tied else f"(?:.*/)?{body}", re.DOTALL), takes_back, only_directories)


def _regex(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        part, used = _step(text, at)
        out, at = out + part, at + used
    return out


def _step(text: str, at: int) -> tuple[str, int]:
    """(regular expression, characters used) of the piece of a pattern that begins at `at`."""
    rest = text[at:]
    if rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
        return "(?:.*/)?", 3
    if rest == "**" and (at == 0 or text[at - 1] == "/"):
        return ".*", 2
    if rest[0] == "*":
        return "[^/]*", len(rest) - len(rest.lstrip("*"))
    if rest[0] == "?":
        return "[^/]", 1
    if rest[0] == "[":
        return _set(rest)
    if rest[0] == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    return re.escape(rest[0]), 1


def _set(rest: str) -> tuple[str, int]:
    """A set such as `[a-z]`. One that is not closed, and a range that falls, match nothing, as in git."""
    match = re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest)
    if match is None:
        return "(?!)", len(rest)
    inside = re.sub(r"([\\\[\]&~|])", r"\\\1", match[2]).replace("^", r"\^")
    pattern = f"[{'^/' if match[1] else ''}{inside}]"
    try:
        re.compile(pattern)
    except re.error:
        pattern = "(?!)"
    return pattern, match.end()
