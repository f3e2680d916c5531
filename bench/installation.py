"""A Shoal of its own for a bench: brought up by the command a user types, in a temporary directory, and taken down again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from shoal.client.api import Api
from shoal.client.settings import find_settings

SHOAL = Path(sys.executable).with_name("shoal")


class Installation:
    """`nodes` local agents with pretended GPUs. `with` brings it up; whatever happens, it is down afterwards."""

    def __init__(self, nodes: int, pretend: str) -> None:
        self._up = ("up", "--nodes", str(nodes), "--pretend", pretend, "--port", "0")
        self._folder = Path()

    def __enter__(self) -> Installation:
        self._folder = Path(tempfile.mkdtemp(prefix="shoal-bench-"))
        self._folder.chmod(0o711)
        try:
            self.call(*self._up)
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._take_down()

    @property
    def state(self) -> Path:
        return self._folder / "state"

    def environment(self) -> dict[str, str]:
        """What commands must find so that they mean this installation."""
        others = {name: value for name, value in os.environ.items() if name not in ("SHOAL_URL", "SHOAL_TOKEN", "SHOAL_PROJECT")}
        return {**others, "SHOAL_STATE_DIR": str(self.state)}

    def call(self, *arguments: str) -> str:
        """What `shoal` with these arguments prints; CalledProcessError where it fails."""
        return subprocess.run(
            [SHOAL, *arguments], env=self.environment(), stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True
        ).stdout

    def time_second_start(self) -> float:
        """Seconds of wall time that `shoal up` takes after a `shoal down`, until all agents are registered."""
        self.call("down", "--grace", "1s")
        began = time.monotonic()
        self.call("up")
        return time.monotonic() - began

    def api(self) -> Api:
        """A client for it, with the administrator's token."""
        return find_settings({}, state_dir=self.state).api()

    def _take_down(self) -> None:
        subprocess.run([SHOAL, "down", "--grace", "1s"], env=self.environment(), capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)
