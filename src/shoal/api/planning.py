"""The planning questions over HTTP: operations, which `table` takes in, and handlers. They know nothing of the plane's state."""

from __future__ import annotations

from shoal.api.operations import Answer, Call, Operation
from shoal.planning.answer import Refused
from shoal.planning.catalogue import topic_named
from shoal.planning.plan import plan
from shoal.planning.wire import PlanningAsk, PlanningReply, TopicSummary, TopicView, topic_summaries, topic_view


async def list_topics(call: Call) -> Answer:  # noqa: ARG001  every handler takes a call
    return Answer(topic_summaries())


async def get_topic(call: Call) -> Answer:
    return Answer(topic_view(call.path["topic"]))


async def ask_topic(call: Call) -> Answer:
    topic_named(call.path["topic"])
    return Answer(await call.service.in_looks(_reply, call.path["topic"], call.body))


def _reply(word: str, ask: PlanningAsk) -> PlanningReply:
    outcome = plan(word.replace("-", "_"), ask.inputs, sensitivity=ask.sensitivity)
    return PlanningReply(refused=outcome) if isinstance(outcome, Refused) else PlanningReply(answer=outcome)


PLANNING = (
    Operation(
        id="planning.list",
        method="GET",
        path="/v1/planning",
        handler=list_topics,
        need="viewer",
        summary="The planning questions that can be asked",
        answer=tuple[TopicSummary, ...],
    ),
    Operation(
        id="planning.get",
        method="GET",
        path="/v1/planning/{topic:name}",
        handler=get_topic,
        need="viewer",
        summary="A planning question with its inputs, their units and what is assumed",
        answer=TopicView,
    ),
    Operation(
        id="planning.ask",
        method="POST",
        path="/v1/planning/{topic:name}",
        handler=ask_topic,
        need="viewer",
        summary="Answer a planning question",
        description="Inputs that do not fit and questions beyond a model's range are answers too, under `refused`, with status 200.",
        body=PlanningAsk,
        takes="json",
        answer=PlanningReply,
    ),
)
"""What `shoal plan` does, for programs in other languages and for pages."""
