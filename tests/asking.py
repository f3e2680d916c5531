"""Raw requests to a server of a test, and what a problem in an answer must have."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from live_server import Serving


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(server: Serving, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Answer:
    """One raw request with the admin token unless `Authorization` is given."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given.setdefault("Authorization", f"Bearer {server.admin}")
    if body is not None:
        given.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body=body, headers=given)
        return Answer(connection.getresponse())
    finally:
        connection.close()


JOBS = "/v1/projects/default/jobs"
BODY = '{"run": "true", "gpus": 2}'


def problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    told: dict[str, Any] = answer.json
    assert (told["status"], told["code"], told["type"]) == (status, code, f"urn:shoal:error:{code}")
    assert told["request_id"] == answer.headers["X-Request-Id"]
    return told
