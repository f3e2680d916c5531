"""
The load of `bench/submit.py`, as light as Python allows, since it shares the cores with the server that it measures: raw protocols on
uvloop, requests patched out of prebuilt bytes, answers looked at only as far as needed. Each client sends its next create when the last
is answered. The first second warms up and is not counted.

    submit_load.py URL CLIENTS SECONDS     (the token comes on standard input)
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import partial
from urllib.parse import urlsplit

import uvloop

WARM_UP_S = 1.0
BODY = json.dumps(
    {
        "name": "bench",
        "run": "python train.py --lr 3e-4",
        "nodes": 2,
        "gpus": {"count": 4, "model": ["h100"]},
        "time": "2h",
        "env": {"NCCL_DEBUG": "WARN"},
    }
).encode()


class Tally:
    """What all clients saw."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.failed = 0
        self.first_failure = ""
        self.counting = False
        self.stopped = False


class Client(asyncio.Protocol):
    """One connection: create after create."""

    def __init__(self, head: bytes, tail: bytes, number: int, tally: Tally) -> None:
        self._head = head
        self._tail = tail
        self._prefix = f"{os.getpid()}-{number}-".encode()
        self._tally = tally
        self._count = 0
        self._got = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._send()

    def _send(self) -> None:
        self._count += 1
        assert self._transport is not None
        self._sent_at = time.perf_counter()
        self._transport.write(self._head + self._prefix + b"%08d" % self._count + self._tail)

    def data_received(self, data: bytes) -> None:
        got = self._got = self._got + data if self._got else data
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return
        at = got.find(b"content-length: ", 0, end)
        length = int(got[at + 16 : got.find(b"\r\n", at)])
        if len(got) < end + 4 + length:
            return
        self._got = b""
        tally = self._tally
        if not got.startswith(b"HTTP/1.1 201"):
            tally.failed += 1
            tally.first_failure = tally.first_failure or got.decode("utf-8", "replace")
        elif tally.counting:
            tally.latencies.append(time.perf_counter() - self._sent_at)
        if tally.stopped:
            assert self._transport is not None
            self._transport.close()
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.stopped:
            self._tally.failed += 1
            self._tally.first_failure = self._tally.first_failure or f"connection lost: {exc}"
        if not self.closed.done():
            self.closed.set_result(None)


async def run(url: str, token: str, clients: int, seconds: float) -> dict[str, object]:
    where = urlsplit(url)
    head = (
        f"POST /v1/projects/default/jobs HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\nIdempotency-Key: "
    ).encode()
    tally = Tally()
    loop = asyncio.get_running_loop()
    assert where.hostname is not None
    assert where.port is not None
    made = [
        await loop.create_connection(partial(Client, head, b"\r\n\r\n" + BODY, number, tally), where.hostname, where.port)
        for number in range(clients)
    ]
    await asyncio.sleep(WARM_UP_S)
    tally.counting = True
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    tally.counting = False
    took = time.perf_counter() - begun
    tally.stopped = True
    await asyncio.wait([protocol.closed for _, protocol in made], timeout=10)
    times = sorted(tally.latencies) or [0.0]
    return {
        "creates": len(tally.latencies),
        "creates_per_s": len(tally.latencies) / took,
        "p50_ms": times[len(times) // 2] * 1_000,
        "p99_ms": times[int(len(times) * 0.99)] * 1_000,
        "failed": tally.failed,
        "first_failure": tally.first_failure,
    }


if __name__ == "__main__":
    uvloop.install()
    print(json.dumps(asyncio.run(run(sys.argv[1], sys.stdin.read().strip(), int(sys.argv[2]), float(sys.argv[3])))))
