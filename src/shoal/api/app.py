"""
The ASGI application: Starlette's router over the operation table, nothing around it.

No middleware: what would be one (request ids, errors, limits) is in `endpoint`, where it costs no wrapper per message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route, Router, WebSocketRoute

from shoal.api.endpoint import PathEndpoint, not_found
from shoal.api.operations import Operation
from shoal.api.service import Service
from shoal.api.table import OPERATIONS
from shoal.api.terminals import TerminalEndpoint, attend_agent, attend_user

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class _Ref(Convertor[str]):
    """A job's id, number or array element."""

    regex = "[0-9A-Za-z_-]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Name(_Ref):
    """A name that people gave: anything but `/` and the `:` that begins a verb."""

    regex = "[^/:]+"


register_url_convertor("ref", _Ref())
register_url_convertor("name", _Name())


def build_app(service: Service) -> ASGIApp:
    """The application that serves `service`."""
    routes = [Route(path, PathEndpoint(service, operations)) for path, operations in _by_path(OPERATIONS).items()]
    terminals = [
        WebSocketRoute("/v1/projects/{project:name}/jobs/{ref:ref}/exec", TerminalEndpoint(service, attend_user, "member")),
        WebSocketRoute("/v1/agent/exec/{session:name}", TerminalEndpoint(service, attend_agent, "node")),
    ]
    router = Router(routes=[*routes, *terminals], redirect_slashes=False, default=not_found)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["shoal.service"] = service
        await router(scope, receive, send)

    return app


def _by_path(operations: tuple[Operation, ...]) -> dict[str, tuple[Operation, ...]]:
    paths: dict[str, tuple[Operation, ...]] = {}
    for operation in operations:
        paths[operation.path] = (*paths.get(operation.path, ()), operation)
    return paths
