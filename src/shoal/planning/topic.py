"""A question as the rest of `planning` sees it. Each module of questions ends with its `Topic`s; `catalogue` finds them by word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from shoal.planning.answer import Answer, Refusal


def nothing_refused(_: Any) -> tuple[Refusal, ...]:
    """The `validate` of a question whose inputs' own bounds are enough."""
    return ()


class Topic(NamedTuple):
    """
    `inputs` is the record with units; `answer` computes for every input that its bounds allow once `validate` refuses nothing. `vary` is
    the input that a plot runs over, `beside` the results that belong next to the headline there; by default those of its unit.
    """

    inputs: type[msgspec.Struct]
    answer: Callable[[Any], Answer]
    vary: str
    validate: Callable[[Any], tuple[Refusal, ...]] = nothing_refused
    beside: tuple[str, ...] = ()
