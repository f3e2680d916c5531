"""The planning questions, answered by a server. `shoal.sdk.planning` answers the same without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.client.transport import segment
from shoal.model.codec import decode_json, encode_json
from shoal.planning.answer import Answer, Refused
from shoal.planning.wire import PlanningAsk, PlanningReply, TopicSummary, TopicView

if TYPE_CHECKING:
    from shoal.client.api import Api


class Planning:
    """`api.planning`."""

    def __init__(self, api: Api) -> None:
        self._http = api.transport

    def topics(self) -> tuple[TopicSummary, ...]:
        """The questions that can be asked."""
        return decode_json(self._http.request("GET", "/v1/planning").body, tuple[TopicSummary, ...])

    def topic(self, word: str) -> TopicView:
        """One question with its inputs. Raises NotFound."""
        return decode_json(self._http.request("GET", f"/v1/planning/{segment(word)}").body, TopicView)

    def ask(self, word: str, inputs: Mapping[str, Any], *, sensitivity: bool = True) -> Answer | Refused:
        """
        The answer for `inputs` by name, or why there is none.

        Values are text with a unit, numbers in the input's own unit, {value, unit}, lists, or rows. Raises NotFound for an unknown word.
        """
        body = encode_json(PlanningAsk(inputs=dict(inputs), sensitivity=sensitivity))
        headers = {"Content-Type": "application/json"}
        reply = decode_json(self._http.request("POST", f"/v1/planning/{segment(word)}", body=body, headers=headers).body, PlanningReply)
        outcome = reply.answer or reply.refused
        assert outcome is not None, "the server answered neither with numbers nor with a refusal"
        return outcome
