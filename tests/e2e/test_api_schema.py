"""Every operation of a running server is asked once; what it answers is what its OpenAPI document says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from json_schema import faults
from live_server import HandAgent, Serving
from shoal.api.table import OPERATIONS
from shoal.base.errors import ShoalError
from shoal.client.api import Api
from shoal.model.codec import encode_json, encode_pack
from shoal.model.job import JobSpec
from shoal.model.queue import QueueSpec
from shoal.model.reservation import ReservationSpec
from shoal.model.schedule import ScheduleSpec
from shoal.model.wire import Join, Register, Upload

PROJECT = "/v1/projects/default"
BLOB = b"some bytes"
SHA = hashlib.sha256(BLOB).hexdigest()


@dataclass(slots=True)
class World:
    """A server with a running job on a node, and the document that it gives of itself."""

    server: Serving
    api: Api
    agent: HandAgent
    document: dict[str, Any]
    running: str
    allocation: str
    waiting: str
    token_id: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Serving(tmp_path_factory.mktemp("schema") / "state") as server:
        api = server.api()
        agent = HandAgent(server.url, (server.state / "join.token").read_text().strip(), "n1")
        api.secrets.set("key", b"value")
        job = api.jobs.submit({"run": "true", "gpus": 2, "secrets": {"key": "key"}})
        prepare = agent.await_prepare()
        agent.start(prepare)
        agent.write(prepare, 0, b"hello\n")
        waiting = api.jobs.submit({"run": "true", "gpus": {"count": 64, "model": ["h100"]}, "array": "0-3"})
        document = json.loads(api.transport.request("GET", "/openapi.json").body)
        server.token("viewer", principal="user/short-lived")
        token_id = next(token.id for token in api.tokens.list() if token.principal == "user/short-lived")
        yield World(server, api, agent, document, job.id, prepare.allocation, waiting.id, token_id)


SCHEDULES = {
    "schedules.list": (f"{PROJECT}/schedules", None),
    "schedules.get": (f"{PROJECT}/schedules/spare", None),
    "schedules.set": (f"{PROJECT}/schedules/made", b'{"cron": "@daily", "job": {"run": "true"}}'),
    "schedules.delete": (f"{PROJECT}/schedules/spare", None),
}


def requests(world: World) -> dict[str, tuple[str, bytes | None]]:
    """One request per operation: its path with query, and its body. Those that take things away come last in the table's own order."""
    facts = world.agent.facts
    register = Register(facts=facts, store_id=world.agent.store_id, held=tuple(world.agent.held.values()))
    upload = Upload(epoch=world.agent.epoch + 1, boot_id=facts.boot_id)
    job, waiting = f"{PROJECT}/jobs/{world.running}", f"{PROJECT}/jobs/{world.waiting}"
    spare = world.api.jobs.submit({"run": "true", "gpus": 64}).id
    elastic = world.api.jobs.submit({"run": "true", "gpus": 64, "nodes": "1..4", "elastic": True}).id
    world.api.queues.set("spare", QueueSpec())
    world.api.reservations.set("spare", ReservationSpec(nodes=("n1",), start_ms=4_102_444_800_000, end_ms=4_102_448_400_000))
    world.api.schedules.set("spare", ScheduleSpec(cron="@daily", job=JobSpec(run="true")))
    world.api.secrets.set("spare", b"x")
    HandAgent(world.server.url, (world.server.state / "join.token").read_text().strip(), "spare")
    return {
        "jobs.create": (f"{PROJECT}/jobs?must_fit=0", b'{"run": "true", "time": "2h", "gpus": "h100:2"}'),
        "agent.register": ("/v1/agent/register", encode_json(register)),
        "agent.upload": ("/v1/agent/upload", encode_pack(upload)),
        "jobs.get": (waiting, None),
        "jobs.list": (f"{PROJECT}/jobs?state=QUEUED,RUNNING&limit=2", None),
        "jobs.wait": (f"{job}/wait?timeout=10ms", None),
        "jobs.why": (f"{PROJECT}/jobs/{spare}/why", None),
        "jobs.update": (f"{PROJECT}/jobs/{spare}", b'{"priority": 3}'),
        "jobs.batch": (f"{PROJECT}/jobs:batch", b'{"items": [{"key": "k", "spec": {"run": "true"}}, {"key": "l", "spec": {"x": 1}}]}'),
        "jobs.hold": (f"{PROJECT}/jobs/{spare}:hold", b'{"reason": "later"}'),
        "jobs.release": (f"{PROJECT}/jobs/{spare}:release", b"{}"),
        "jobs.requeue": (f"{job}:requeue", None),
        "jobs.resize": (f"{PROJECT}/jobs/{elastic}:resize", b'{"size": 2}'),
        "jobs.cancel_by_key": (f"{PROJECT}/jobs:cancelByKey", b'{"key": "never-sent", "reason": "no answer"}'),
        "jobs.cancel": (f"{job}:cancel", b'{"mode": "force", "grace": "5s", "reason": "enough"}'),
        "logs.list": (f"{job}/logs", None),
        "logs.read": (f"{job}/logs/0?after=1", None),
        "events.read": (f"{PROJECT}/events?kinds=job,queue&limit=500", None),
        "agent.commands": ("/v1/agent/commands?after=0&wait=1ms", None),
        "agent.join": ("/v1/agent/join", encode_json(Join(name="n9", facts=facts))),
        "agent.blob": (f"/v1/agent/blobs/{SHA}", None),
        "agent.secrets": (f"/v1/agent/allocations/{world.allocation}/secrets", None),
        "nodes.list": ("/v1/nodes", None),
        "nodes.get": ("/v1/nodes/n1", None),
        "nodes.drain": ("/v1/nodes/spare:drain", b'{"reason": "disk"}'),
        "nodes.cordon": ("/v1/nodes/spare:cordon", None),
        "nodes.resume": ("/v1/nodes/spare:resume", None),
        "nodes.remove": ("/v1/nodes/spare", None),
        "queues.list": ("/v1/queues", None),
        "queues.get": ("/v1/queues/default", None),
        "queues.set": ("/v1/queues/made", b'{"weight": 2000, "quotas": {"gpu/h100": {"nominal": 8000}}}'),
        "queues.delete": ("/v1/queues/spare", None),
        "reservations.list": ("/v1/reservations", None),
        "reservations.get": ("/v1/reservations/spare", None),
        "reservations.set": ("/v1/reservations/made", b'{"pool": "none-yet", "start_ms": 4102444800000, "end_ms": 4102448400000}'),
        "reservations.delete": ("/v1/reservations/spare", None),
        "planning.list": ("/v1/planning", None),
        "planning.get": ("/v1/planning/fair_share", None),
        "planning.ask": ("/v1/planning/cold_start", b'{"inputs": {}}'),
        "blobs.put": (f"{PROJECT}/blobs/{SHA}", BLOB),
        "blobs.has": (f"{PROJECT}/blobs/{SHA}", None),
        "blobs.get": (f"{PROJECT}/blobs/{SHA}", None),
        **SCHEDULES,
        "secrets.list": (f"{PROJECT}/secrets", None),
        "secrets.set": (f"{PROJECT}/secrets/other", b'{"value": "AAECAw=="}'),
        "secrets.delete": (f"{PROJECT}/secrets/spare", None),
        "tokens.list": ("/v1/tokens", None),
        "tokens.create": ("/v1/tokens", b'{"principal": "user/anna", "role": "viewer", "life": "1d"}'),
        "tokens.revoke": (f"/v1/tokens/{world.token_id}", None),
        "what_if.ask": (f"{PROJECT}/what-if", b'{"submit": [{"run": "true", "gpus": {"count": 4}}], "drain": ["n1"]}'),
        "debug.snapshot": ("/v1/debug/snapshot", None),
        "meta.get": ("/v1/meta", None),
        "meta.health": ("/healthz", None),
        "meta.openapi": ("/openapi.json", None),
    }


ORDER = ("agent.register", "blobs.put", "jobs.create")
"""Asked before the others, which need what these make."""
LAST = ("jobs.requeue", "jobs.cancel", "nodes.remove")


def test_every_operation_answers_as_its_document_says(world: World) -> None:
    asked = requests(world)
    assert set(asked) == {operation.id for operation in OPERATIONS}
    middle = sorted(set(asked) - set(ORDER) - set(LAST), key=lambda name: (name.endswith(("delete", "revoke")), name))
    told: list[str] = []
    for name in (*ORDER, *middle, *LAST):
        told += check(world, name, *asked[name])
    assert told == []


def check(world: World, name: str, target: str, body: bytes | None) -> list[str]:
    """What is wrong with an operation's answer by the document."""
    operation = next(operation for operation in OPERATIONS if operation.id == name)
    entry = world.document["paths"][re.sub(r"{(\w+):\w+}", r"{\1}", operation.path)][operation.method.lower()]
    api = world.agent.api if operation.need == "node" else world.api
    headers = {"Content-Type": {"json": "application/json", "pack": "application/msgpack"}.get(operation.takes, "application/octet-stream")}
    path, _, query = target.partition("?")
    given = dict(part.split("=") for part in query.split("&")) if query else {}
    if operation.takes == "json" and body is not None and name not in ("jobs.create", "jobs.batch"):
        schema = entry["requestBody"]["content"]["application/json"]["schema"]
        assert faults(json.loads(body), schema, world.document) == [], f"the test's own request to {name}"
    try:
        reply = api.transport.request(operation.method, path, query=given, body=body, headers=headers)
    except ShoalError as error:
        return [f"{name}: {error.message}"]
    described = entry["responses"].get(str(reply.status))
    if described is None:
        return [f"{name}: {reply.status} is not described"]
    missing = [header for header in ("X-Request-Id",) if header not in reply.headers]
    return [*(f"{name}: no {header}" for header in missing), *_body_faults(world, name, described, reply.headers, reply.body)]


def _body_faults(world: World, name: str, described: dict[str, Any], headers: Any, body: bytes) -> list[str]:
    content = described.get("content")
    if content is None:
        return [f"{name}: a body that is not described"] if body else []
    media = headers["Content-Type"]
    if media not in content:
        return [f"{name}: {media} is not described"]
    if "schema" not in content[media]:
        return []
    plain = json.loads(body) if media == "application/json" else msgspec.msgpack.decode(body)
    return [f"{name}{fault}" for fault in faults(plain, content[media]["schema"], world.document)]


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.need != "open" and o.method != "HEAD"], ids=lambda o: o.id)
def test_every_operation_asks_for_a_token_and_says_so_as_a_problem(world: World, operation: Any) -> None:
    path = re.sub(r"{\w+:\w+}", "x", operation.path)
    with pytest.raises(ShoalError) as caught:
        world.server.api("").transport.request(operation.method, path)
    assert caught.value.code == "unauthenticated"
