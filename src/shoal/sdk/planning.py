"""
The planning questions as functions, without a server: `planning.spot_gang(nodes=64, node_rate="0.02/h", checkpoint="1 min", ...)`.

Every word of `shoal plan list` is one. Inputs go by name: text with a unit, numbers in the input's own unit, `{"value": 3, "unit": "h"}`,
lists, rows. What comes back is the `Answer` that the command prints (`answer.value("gain")` is a number in coherent units: seconds, bytes,
GPUs), or `Refused` with the reasons: a question beyond its model's range gets no number, and that is no error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.planning.answer import Answer, Refused
from shoal.planning.catalogue import CATALOGUE, topic_named
from shoal.planning.plan import plan
from shoal.planning.wire import TopicView, topic_view

__all__ = ["Answer", "Refused", "ask", "describe"]


def ask(topic: str, *, sensitivity: bool = True, **inputs: Any) -> Answer | Refused:
    """The answer to the question `topic`, or why there is none. Raises NotFound for an unknown word."""
    topic_named(topic)
    return plan(topic.replace("-", "_"), inputs, sensitivity=sensitivity)


def describe(topic: str) -> TopicView:
    """What a question wants to know: its inputs with units, bounds and assumptions. Raises NotFound for an unknown word."""
    return topic_view(topic)


def __getattr__(word: str) -> Callable[..., Answer | Refused]:
    if word not in CATALOGUE:
        raise AttributeError(f"there is no planning question {word!r}; shoal plan list shows them")

    def question(*, sensitivity: bool = True, **inputs: Any) -> Answer | Refused:
        return plan(word, inputs, sensitivity=sensitivity)

    question.__name__ = question.__qualname__ = word
    question.__doc__ = CATALOGUE[word].question
    return question


def __dir__() -> list[str]:
    return [*__all__, *CATALOGUE]
