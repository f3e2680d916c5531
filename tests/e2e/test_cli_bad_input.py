"""
Broken job files: each is told on one screen with its place and cause, ends with code 2, and creates nothing.

The files are in `tests/data/bad_jobs`. What is larger than a file should be is made here. A file cannot make jobs wait for each other in
a circle: `depends_on` takes jobs that exist. That this holds for numbers that are still to come is tested here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import answer, shoal
from live_server import Serving
from shoal.base import limits

FOLDER = Path(__file__).parent.parent / "data" / "bad_jobs"
SCREEN_LINES = 24

WANTED: dict[str, tuple[int | None, tuple[str, ...]]] = {
    # name: (line of the first fault, words that the error must have)
    "binary-bell": (None, ("line 2, column 8", "U+0007")),
    "binary-gzip": (None, ("gzip archive, not a job file",)),
    "binary-zero": (None, ("binary", "zero byte at offset 28")),
    "bomb-aliases": (1, ("anchors such as &a", "aliases such as *a", "more faults")),
    "bomb-depth": (2, ("nesting depth",)),
    "bomb-width": (2, ("more than 50,000 values",)),
    "dependencies-condition": (2, ("afterlunch", "afterok")),
    "dependencies-cycle-by-name": (4, ("number of a job that exists", "'egg'", "'chicken'")),
    "dependencies-unknown-job": (2, ("no job '999999'",)),
    "empty": (None, ("holds no job", "run: echo hello")),
    "encoding-latin1": (None, ("line 2", "not UTF-8")),
    "encoding-utf16": (None, ("UTF-16", "save it as UTF-8")),
    "keys-near": (2, ("unknown key 'gpu'", "did you mean 'gpus'?")),
    "keys-nested": (3, ("/gpus/cuont", "did you mean 'count'?")),
    "keys-of-slurm": (1, ("'partition'; did you mean 'queue'?", "'mem'; did you mean 'memory'?", "5 faults")),
    "keys-too-many": (2, ("40 faults", "and 28 more faults")),
    "keys-twice": (3, ("'nodes' stands here a second time", "first in line 2")),
    "limits-array": (2, ("0-999999999", "more than 10000 tasks")),
    "limits-array-falls": (2, ("'5-1'", "must rise")),
    "limits-gpus-per-node": (2, ("1,000", "at most 64")),
    "limits-nodes": (2, ("100,000", "at most 16,384")),
    "limits-priority": (2, ("10,000,000", "at most 1,000,000")),
    "limits-tasks": (4, ("16,777,216", "at most 131,072")),
    "negative-cpus": (2, ("-4", "at least 1")),
    "negative-gpus": (2, ("-8", "at least 0")),
    "negative-nodes": (2, ("'-1'", "for example 4 or 2..4")),
    "negative-retry": (2, ("-1", "at least 0")),
    "negative-time": (2, ("'-5m'", "for example 2h30m")),
    "rules-mount-relative": (3, ("'data'", "absolute path")),
    "rules-queue-missing": (2, ("no queue 'no-such-queue'",)),
    "rules-run-missing": (1, ("run is missing", "for example run:")),
    "rules-second-job": (6, ("no queue 'no-such-queue'",)),
    "rules-secret-missing": (2, ("no secret 'NO_SUCH_SECRET'", "shoal secret set")),
    "rules-signal": (2, ("'PLEASE'", "TERM")),
    "types-cpus-words": (2, ("a whole number", "'many'")),
    "types-env-list": (2, ("a mapping of names to text", "a list")),
    "types-env-nested": (4, ("/env/MODEL", "expected text, got a mapping")),
    "types-env-nothing": (3, ("/env/LR", "has no value")),
    "types-gpus-fraction": (2, ("a whole number", "1.5")),
    "types-gpus-true": (2, ("h100:8", "got true")),
    "types-gpus-words": (2, ("h100:8", "'eight h100'")),
    "types-list-at-top": (1, ("expected a mapping", "got a list")),
    "types-nodes-words": (2, ("'two'", "4 or 2..4")),
    "types-preemptible-no": (3, ("true or false", "'no'")),
    "types-run-mapping": (2, ("expected text or a list", "a mapping")),
    "units-gpu-memory-range": (2, ("'80GB..40GB'", "low end is above the high end")),
    "units-memory-bare": (2, ("'64GiB'", "got 64")),
    "units-memory-unknown": (2, ("'64 gigs'", "GiB")),
    "units-time-bare": (2, ("'2h30m'", "got 90")),
    "units-time-colons": (3, ("'12:30'", "for example 2h30m")),
    "yaml-anchor": (2, ("anchors such as &base", "aliases such as *base")),
    "yaml-colon": (1, ("needs quotes",)),
    "yaml-open-bracket": (2, ("not valid YAML", "began in line 1")),
    "yaml-tab": (3, ("spaces, not tabs",)),
    "yaml-tag": (1, ("!!python/object/apply:os.system", "not taken")),
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("bad-input") / "state") as serving:
        yield serving


def must_refuse(serving: Serving, *arguments: str, stdin: bytes | None = None) -> str:
    """The error that a command gives, which must be one screen on standard error, with code 2 and nothing created."""
    result = shoal(serving.state, *arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert 0 < len(lines) <= SCREEN_LINES
    assert "Traceback" not in result.stderr
    assert max(map(len, lines)) < 400
    assert answer(serving.state, "jobs", "--all")["items"] == []
    return result.stderr


def test_there_are_forty_files_and_each_has_its_answer() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(WANTED)
    assert len(WANTED) >= 40


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_broken_file_is_told_on_one_screen_and_creates_nothing(serving: Serving, name: str) -> None:
    path = FOLDER / f"{name}.yaml"
    line, words = WANTED[name]
    told = must_refuse(serving, "submit", str(path))
    for word in words:
        assert word in told
    if line is not None:
        assert told.splitlines()[1].startswith(f"{path}:{line}:")


def test_a_file_of_ten_megabytes_is_refused_by_its_size(serving: Serving, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"run: true\n#" + b"x" * (10 << 20))
    told = must_refuse(serving, "submit", str(path))
    assert f"{path.stat().st_size:,} bytes; a job file may have {limits.JOB_FILE_BYTES_MAX:,}" in told


def test_endless_standard_input_is_refused_by_its_size(serving: Serving) -> None:
    told = must_refuse(serving, "submit", "-", stdin=b"#" * (3 << 20))
    assert "standard input has more than 1,048,576 bytes" in told


def test_what_is_no_file_is_told(serving: Serving, tmp_path: Path) -> None:
    assert "no such file" in must_refuse(serving, "submit", str(tmp_path / "none.yaml"))
    assert "is a directory" in must_refuse(serving, "submit", str(tmp_path))


def test_a_job_cannot_depend_on_numbers_that_are_still_to_come(serving: Serving, tmp_path: Path) -> None:
    path = tmp_path / "self.yaml"
    for number in range(1, 60):
        path.write_text(f"run: true\ndepends_on: {number}\n")
        assert f"no job '{number}'" in must_refuse(serving, "submit", str(path))


def test_one_bad_file_among_good_ones_creates_nothing(serving: Serving, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("run: true\n")
    told = must_refuse(serving, "submit", str(good), str(FOLDER / "keys-near.yaml"), str(FOLDER / "rules-queue-missing.yaml"))
    assert "did you mean 'gpus'?" in told
    assert "no queue" in must_refuse(serving, "submit", str(good), str(FOLDER / "rules-queue-missing.yaml"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--gpus", "h100 x 8", "true"), "command line: /gpus: expected a count, h100:8"),
        (("run", "--memory", "64", "true"), "/memory"),
        (("run", "--time", "90", "true"), "/time"),
        (("run", "--queue", "none", "true"), "no queue 'none'"),
        (("run", "--env", "NO_SUCH_VARIABLE_HERE", "true"), "--env NO_SUCH_VARIABLE_HERE=VALUE"),
        (("run", "--nodes", "0", "true"), "/nodes"),
        (("submit", "-", "--set", "gpus"), "write key=value"),
        (("submit", "-", "--set", "gpus.cuont=4"), "did you mean 'count'? (from --set gpus.cuont=4)"),
        (("jobs", "--state", "runing"), "did you mean 'running'?"),
        (("cancel",), "which jobs?"),
        (("update", "1"), "nothing to change"),
        (("logs", "1/x"), "the task after / is its rank"),
        (("queues", "set", "q", "--gpu", "h100=many"), "'many' is no amount"),
        (("queues", "set", "q", "--borrow", "gpus=4"), "write RESOURCE=AMOUNT"),
        (("secret", "set", "X"), "the value is empty"),
        (("wait", "1", "--timeout", "5"), "--timeout: duration '5'"),
    ],
)
def test_bad_flags_are_told_like_bad_files(serving: Serving, arguments: tuple[str, ...], words: str) -> None:
    stdin = b"run: true\n" if arguments[0] == "submit" else b""
    assert words in must_refuse(serving, *arguments, stdin=stdin)


def test_errors_are_records_with_json(serving: Serving) -> None:
    import json

    result = shoal(serving.state, "submit", str(FOLDER / "keys-near.yaml"), "--json")
    assert result.exit_code == 2
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["exit_code"], error["source"]) == ("invalid", 2, str(FOLDER / "keys-near.yaml"))
    assert error["faults"] == [
        {"message": "unknown key 'gpu'; did you mean 'gpus'?", "pointer": "/gpu", "line": 2, "column": 1},
    ]
