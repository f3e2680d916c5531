"""Every error has one status, one code and a problem that reads back as the same error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from shoal.api.problems import INTERNAL, encode_problem, problem_headers, problem_of, status_of
from shoal.base import errors
from shoal.base.errors import Fault, Invalid, InvariantViolated, NotFound, RateLimited, ShoalError, Unavailable
from shoal.client.answers import error_of
from shoal.model.problem import Problem

ROOT = Path(__file__).parents[3]


def tree(kind: type[ShoalError]) -> list[type[ShoalError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in tree(child))]


KINDS = [kind for kind in tree(ShoalError) if kind.__module__ == errors.__name__]
"""Errors that others derive for themselves (the agent, of its supervisor) never cross the wire."""


DRAWN = dict(re.findall(r"[|`]-- (\w+) +[^\n]*?(\d{3})$", errors.__doc__ or "", re.MULTILINE))


def test_the_tree_draws_the_statuses() -> None:
    assert len(DRAWN) >= 15


@pytest.mark.parametrize("kind", KINDS)
def test_statuses_are_those_drawn_in_the_error_tree(kind: type[ShoalError]) -> None:
    drawn = next((DRAWN[step.__name__] for step in kind.__mro__ if step.__name__ in DRAWN), None)
    if drawn is None:
        assert kind in (ShoalError, errors.RequestError)
    else:
        assert status_of(kind("x")) == int(drawn)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not InvariantViolated])
def test_an_error_crosses_the_wire_as_itself(kind: type[ShoalError]) -> None:
    problem = problem_of(kind("words"), request_id="r1")
    back = error_of(msgspec.json.decode(encode_problem(problem), type=Problem))
    assert type(back) is kind
    assert back.message == "words"


def test_who_derives_an_error_for_himself_is_never_read_from_an_answer() -> None:
    program = (
        "from shoal.agent.supervisor.link import SupervisorGone\n"
        "from shoal.client.answers import error_of\n"
        "from shoal.model.problem import Problem\n"
        "print(type(error_of(Problem(type='', title='', status=503, detail='', code=SupervisorGone.code, retryable=True))).__name__)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip() == "Unavailable"


def test_faults_keep_their_places() -> None:
    fault = Fault("no such key", "/gpus/modle", 3, 7, ("model",))
    back = error_of(problem_of(Invalid("bad file", (fault,)), request_id=""))
    assert isinstance(back, Invalid)
    assert back.faults == (fault,)


def test_waiting_is_told_in_milliseconds_and_in_whole_seconds() -> None:
    problem = problem_of(Unavailable("full", retry_after_ms=1_200), request_id="")
    assert problem.retry_after_ms == 1_200
    assert (b"retry-after", b"2") in problem_headers(problem)
    back = error_of(problem)
    assert isinstance(back, Unavailable)
    assert back.retry_after_ms == 1_200


@pytest.mark.parametrize("error", [ValueError("secret detail"), InvariantViolated("secret detail")])
def test_a_fault_of_the_server_keeps_its_text_for_the_log(error: Exception) -> None:
    problem = problem_of(error, request_id="r9")
    assert problem.status == 500
    assert "secret detail" not in problem.detail
    assert "r9" in problem.detail


def test_a_code_from_a_newer_server_is_read_by_its_status() -> None:
    problem = Problem(type="urn:shoal:error:new", title="", status=429, detail="slow", code="new", retryable=True, retry_after_ms=5)
    assert type(error_of(problem)) is RateLimited


def test_internal_words_never_cross_the_wire() -> None:
    assert b"operator only" not in encode_problem(problem_of(NotFound("gone", internal="operator only"), request_id=""))


def test_every_code_is_documented() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", text, re.MULTILINE))
    wanted = {(kind.code, str(status_of(kind("x")))) for kind in KINDS} | {(INTERNAL, "500")}
    assert documented == wanted
