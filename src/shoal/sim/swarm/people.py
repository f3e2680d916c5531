"""
What people do: they submit jobs, with a key that they keep until they are answered, and change their minds.

A request that got no answer is sent again with the same key, as the CLI does; what was accepted is told to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.base.errors import KeyReused, ShoalError, Unavailable
from shoal.base.rng import Rng
from shoal.model.codec import decode_json, encode_json
from shoal.model.job import Job
from shoal.model.wire import JobPage
from shoal.sim.swarm.agenda import Agenda
from shoal.sim.swarm.network import Network, Reply, Request
from shoal.sim.swarm.oracle import Oracle, Order

JOBS = "/v1/projects/default/jobs"
_JSON = (b"content-type", b"application/json")
RETRY_MS_MAX = 3_000
PAGE_ROWS = 5


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
        elif draw < 95:
            self._other_body(self.rng.choice(self._orders))
        else:
            _Walk(self).begin()

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
        self.persist(request, lambda reply: self.oracle.created(order, decode_json(reply.body, Job)))

    def _cancel(self, order: Order) -> None:
        if order.job is None:
            return
        ask = {"mode": self.rng.choice(("graceful", "graceful", "force")), "reason": "changed my mind"}
        request = Request("POST", f"{JOBS}/{order.job}:cancel", self.token(), encode_json(ask), (_JSON,))
        self.persist(request, lambda reply: self.oracle.cancelled(order, decode_json(reply.body, Job)))

    def _other_body(self, order: Order) -> None:
        """A create with a key that was used for another body: it must be refused, and nothing made of it."""
        if order.job is None:
            return
        body = encode_json({**self._spec(order.key), "name": "another"})
        request = Request("POST", JOBS, self.token(), body, (_JSON, (b"idempotency-key", order.key.encode())))

        def accepted(reply: Reply) -> None:
            self.oracle.violate(f"key {order.key} with another body was answered {reply.status}")

        self.persist(request, accepted, refusal=KeyReused.code)

    def persist(self, request: Request, answered: Callable[[Reply], None], refusal: str = "") -> None:
        """Asks until there is an answer; `refusal` is the code of the one error that is right."""
        self.open_requests += 1

        def heard(outcome: Reply | ShoalError) -> None:
            if isinstance(outcome, Unavailable):
                self.agenda.after(self.rng.below(RETRY_MS_MAX), lambda: self.network.ask("people", request, heard))
                return
            self.open_requests -= 1
            if not isinstance(outcome, ShoalError):
                answered(outcome)
            elif outcome.code != refusal:
                self.oracle.violate(f"{request.method} {request.target} was refused: {outcome.code}: {outcome.message}")

        self.network.ask("people", request, heard)

    # --- what they want -----------------------------------------------------------------------------------------------------------
    def _spec(self, key: str) -> dict[str, Any]:
        rng = self.rng
        run = ["swarm", f"run_ms={rng.choice((50, 300, 1_000, 3_000, 8_000, 25_000))}"]
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
            "on_disconnect": {"stop_after": f"{rng.choice((2, 6, 9))}s"},
            "stop": {"grace": f"{rng.choice((1, 3))}s"},
            "retry": {"limit": rng.below(3)},
            "priority": rng.below(3) * 100,
        }
        if rng.below(6) == 0:
            spec["time"] = f"{2 + rng.below(8)}s"
            if rng.below(2) == 0:
                run[1] = "run_ms=1000000000"  # its time limit alone ends it
        return spec


@dataclass
class _Walk:
    """Somebody pages through the list of jobs while others submit: each job that was there all the time comes exactly once."""

    people: People
    known: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Remembers what must be in the list, and asks for its first page."""
        self.known = {order.job for order in self.people.oracle.orders.values() if order.job is not None}
        self._ask("")

    def _ask(self, cursor: str) -> None:
        query = f"limit={PAGE_ROWS}" + (f"&cursor={cursor}" if cursor else "")
        self.people.persist(Request("GET", JOBS, self.people.token(), query=query), self._take)

    def _take(self, reply: Reply) -> None:
        page = decode_json(reply.body, JobPage)
        self.seen.extend(job.id for job in page.items)
        if page.next is not None:
            self._ask(page.next)
            return
        twice = sorted({job for job in self.seen if self.seen.count(job) > 1})
        missing = sorted(self.known.difference(self.seen))
        if twice or missing:
            self.people.oracle.violate(f"a walk through the list met {twice} twice and missed {missing}")
