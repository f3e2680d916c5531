"""Ctrl-C between a create and its answer: the request has gone out, its job must not stay."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import variables
from live_server import Serving
from shoal.client.api import Api

WAIT_S = 30.0


class Withholding:
    """A relay in front of a server that lets everything through but the answers to creates."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.created = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._to))
        mute = threading.Event()

        def back() -> None:
            while data := server.recv(65_536):
                if mute.is_set():
                    self.created.set()
                else:
                    client.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        while data := client.recv(65_536):
            if data.startswith(b"POST") and b"/jobs HTTP" in data.split(b"\r\n", 1)[0]:
                mute.set()
            server.sendall(data)
        server.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "state") as serving:
        yield serving


def test_an_interrupted_submission_takes_back_what_it_made(serving: Serving, tmp_path: Path) -> None:
    api = serving.api()
    relay = Withholding(int(api.url.rpartition(":")[2]))
    (tmp_path / "job.yaml").write_text("run: sleep 600\n")
    environment = variables(serving.state, SHOAL_URL=f"http://127.0.0.1:{relay.port}", SHOAL_TOKEN=api.transport.token or "")
    command = [sys.executable, "-m", "shoal.cli.main", "submit", str(tmp_path / "job.yaml")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert relay.created.wait(WAIT_S), "the create did not reach the server"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "had been made and is cancelled" in err
    assert _states(api) == ["CANCELLED"]
    assert not list((serving.state / "submissions").glob("*.json"))
    relay.close()


def _states(api: Api) -> list[str]:
    end = time.monotonic() + WAIT_S
    while (states := [str(job.state) for job in api.jobs.list_all()]) != ["CANCELLED"] and time.monotonic() < end:
        time.sleep(0.05)
    return states
