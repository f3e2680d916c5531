"""uvicorn, driven by the composition root: its signals are ours, it says when it is ready, it ends long answers before it waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from shoal.api.app import build_app
from shoal.api.protocol import HttpProtocol
from shoal.api.service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp

KEEP_ALIVE_S = 75
"""Longer than the pauses of people and agents: a new connection per request costs more than an idle one."""
DRAIN_S = 5
"""How long answers that are under way get at the end."""


class HttpServer(uvicorn.Server):
    """One service over HTTP. `ready` is called once connections are taken."""

    def __init__(self, service: Service, ready: Callable[[], None], *, cert: Path | None = None, key: Path | None = None) -> None:
        super().__init__(_config(build_app(service), cert, key))
        self._service = service
        self._ready = ready
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Takes no more connections, ends long answers, waits for the others up to DRAIN_S. A second call waits for nothing."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        """uvicorn looks ten times a second whether it should stop; here it is told."""
        await self.on_tick(0)
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: the composition root has its own handlers, and must live on to close the store."""
        yield


def _config(app: ASGIApp, cert: Path | None, key: Path | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
