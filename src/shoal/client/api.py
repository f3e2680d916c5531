"""
The API of one server as one object, a part per noun: `api.jobs`, `api.logs`, `api.events`, `api.nodes`, `api.queues`, ...

Made by the CLI, the SDK and the agent. Parts are made when first used, so that `shoal queue` imports what it needs and no more.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from shoal.client.transport import Transport
from shoal.model.codec import decode_json
from shoal.model.wire import Health, Meta

if TYPE_CHECKING:
    from shoal.client.access import Secrets, Tokens
    from shoal.client.agent import AgentCalls
    from shoal.client.blobs import Blobs
    from shoal.client.events import Events
    from shoal.client.jobs import Jobs
    from shoal.client.logs import Logs
    from shoal.client.nodes import Nodes
    from shoal.client.planning import Planning
    from shoal.client.queues import Queues
    from shoal.client.reservations import Reservations
    from shoal.client.schedules import Schedules
    from shoal.client.terminal import Terminals

T = TypeVar("T")


class Api:
    """
    A server, seen by the holder of one token, in one project.

    `patience_s` bounds how long a request is tried again while the server restarts or is too busy; 0 tries once. `ca_file` is the
    certificate to trust for https. Any thread may use it.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        project: str = "default",
        patience_s: float = 15.0,
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        self.transport = Transport(url, token, patience_s=patience_s, ca_file=ca_file, insecure=insecure)
        self.project = project

    @property
    def url(self) -> str:
        return self.transport.url

    def __repr__(self) -> str:
        return f"Api({self.url!r}, project={self.project!r})"

    def close(self) -> None:
        """Closes idle connections; the object may be used again."""
        self.transport.close()

    def meta(self) -> Meta:
        """What the server is and can; needs no token."""
        return decode_json(self.transport.request("GET", "/v1/meta").body, Meta)

    def health(self) -> Health:
        """Whether the server does its work. Raises Unavailable when it does not; needs no token."""
        return decode_json(self.transport.request("GET", "/healthz").body, Health)

    @cached_property
    def jobs(self) -> Jobs:
        from shoal.client.jobs import Jobs

        return Jobs(self)

    @cached_property
    def logs(self) -> Logs:
        from shoal.client.logs import Logs

        return Logs(self)

    @cached_property
    def events(self) -> Events:
        from shoal.client.events import Events

        return Events(self)

    @cached_property
    def nodes(self) -> Nodes:
        from shoal.client.nodes import Nodes

        return Nodes(self)

    @cached_property
    def queues(self) -> Queues:
        from shoal.client.queues import Queues

        return Queues(self)

    @cached_property
    def reservations(self) -> Reservations:
        from shoal.client.reservations import Reservations

        return Reservations(self)

    @cached_property
    def schedules(self) -> Schedules:
        from shoal.client.schedules import Schedules

        return Schedules(self)

    @cached_property
    def planning(self) -> Planning:
        from shoal.client.planning import Planning

        return Planning(self)

    @cached_property
    def tokens(self) -> Tokens:
        from shoal.client.access import Tokens

        return Tokens(self)

    @cached_property
    def secrets(self) -> Secrets:
        from shoal.client.access import Secrets

        return Secrets(self)

    @cached_property
    def blobs(self) -> Blobs:
        from shoal.client.blobs import Blobs

        return Blobs(self)

    @cached_property
    def terminals(self) -> Terminals:
        from shoal.client.terminal import Terminals

        return Terminals(self)

    @cached_property
    def agent(self) -> AgentCalls:
        from shoal.client.agent import AgentCalls

        return AgentCalls(self)
