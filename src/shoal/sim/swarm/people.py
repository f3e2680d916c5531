"""
What people do: they submit jobs, with a key that they keep until they are answered, and change their minds.

A request that got no answer is sent again with the same key, as the CLI does; what was accepted is told to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.base.errors import ShoalError, Unavailable
from shoal.base.rng import Rng
from shoal.model.codec import decode_json, encode_json
from shoal.model.job import Job
from shoal.sim.swarm.agenda import Agenda
from shoal.sim.swarm.network import Network, Reply, Request
from shoal.sim.swarm.oracle import Oracle, Order

JOBS = "/v1/projects/default/jobs"
_JSON = (b"content-type", b"application/json")
RETRY_MS_MAX = 3_000


@dataclass
class People:
    """See module."""

    agenda: Agenda
    network: Network
    oracle: Oracle
    rng: Rng
    token: Callable[[], str]
    open_requests: int = 0
    """What has not been answered yet."""
    _orders: list[Order] = field(default_factory=list)

    def act(self) -> None:
        """One thing that somebody does."""
        draw = self.rng.below(100)
        if draw < 55 or not self._orders:
            self._submit()
        elif draw < 80:
            self._cancel(self.rng.choice(self._orders))
        elif draw < 90:
            self._again(self.rng.choice(self._orders))
        else:
            self._look()

    # --- what they do -------------------------------------------------------------------------------------------------------------
    def _submit(self) -> None:
        key = f"key-{len(self._orders)}"
        order = Order(key, encode_json(self._spec(key)))
        self._orders.append(order)
        self.oracle.orders[key] = order
        self._again(order)

    def _again(self, order: Order) -> None:
        """The create, for the first time or once more."""
        request = Request("POST", JOBS, self.token(), order.body, (_JSON, (b"idempotency-key", order.key.encode())))
        self._persist(request, lambda reply: self.oracle.created(order, decode_json(reply.body, Job)))

    def _cancel(self, order: Order) -> None:
        if order.job is None:
            return
        ask = {"mode": self.rng.choice(("graceful", "graceful", "force")), "reason": "changed my mind"}
        request = Request("POST", f"{JOBS}/{order.job}:cancel", self.token(), encode_json(ask), (_JSON,))
        self._persist(request, lambda reply: self.oracle.cancelled(order, decode_json(reply.body, Job)))

    def _look(self) -> None:
        self._persist(Request("GET", JOBS, self.token(), query="limit=20"), lambda _: None)

    def _persist(self, request: Request, answered: Callable[[Reply], None]) -> None:
        """Asks until there is an answer."""
        self.open_requests += 1

        def heard(outcome: Reply | ShoalError) -> None:
            if isinstance(outcome, Unavailable):
                self.agenda.after(self.rng.below(RETRY_MS_MAX), lambda: self.network.ask("people", request, heard))
                return
            self.open_requests -= 1
            if isinstance(outcome, ShoalError):
                self.oracle.violate(f"{request.method} {request.target} was refused: {outcome.code}: {outcome.message}")
            else:
                answered(outcome)

        self.network.ask("people", request, heard)

    # --- what they want -----------------------------------------------------------------------------------------------------------
    def _spec(self, key: str) -> dict[str, Any]:
        rng = self.rng
        run = ["swarm", f"run_ms={rng.choice((50, 800, 3_000, 6_000, 15_000))}"]
        if rng.below(5) == 0:
            run.append("exit=3")
        if rng.below(6) == 0:
            run.append("stubborn")
        if rng.below(3) == 0:
            run.append(f"term_ms={rng.below(1_500)}")
        if rng.below(8) == 0:
            run.append(f"stuck_ms={rng.below(1_500)}")
        spec: dict[str, Any] = {
            "run": run,
            "gpus": 1 + rng.below(4),
            "nodes": 1 + rng.below(3),
            "labels": {"key": key},
            "on_disconnect": {"stop_after": f"{rng.choice((6, 10, 20))}s"},
            "stop": {"grace": f"{rng.choice((1, 3))}s"},
            "retry": {"limit": rng.below(3)},
            "priority": rng.below(3) * 100,
        }
        if rng.below(6) == 0:
            spec["time"] = f"{2 + rng.below(8)}s"
        return spec
