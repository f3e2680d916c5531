"""
Which server, which token, which project: from flags, then the environment, then the state directory of a local server.

Called by the CLI and the SDK, which bring the environment. `shoal up` writes `url` and `admin.token` into the state directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal.base.errors import Unavailable
from shoal.client.api import Api

DEFAULT_URL = "http://127.0.0.1:7461"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where and as whom to ask. `source` says in words where the address came from."""

    url: str
    token: str
    project: str
    state_dir: Path
    ca_file: str | None = None
    source: str = ""

    def api(self, patience_s: float = 15.0) -> Api:
        """The API object for these settings."""
        return Api(self.url, self.token, project=self.project, patience_s=patience_s, ca_file=self.ca_file)


def state_dir_of(environ: Mapping[str, str]) -> Path:
    """`$SHOAL_STATE_DIR`, else `$XDG_STATE_HOME/shoal`, else `~/.local/state/shoal`."""
    given = environ.get("SHOAL_STATE_DIR")
    if given:
        return Path(given)
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local" / "state")
    return Path(base) / "shoal"


def find_settings(
    environ: Mapping[str, str],
    *,
    url: str | None = None,
    token: str | None = None,
    project: str | None = None,
    state_dir: Path | None = None,
) -> Settings:
    """
    Flags win over the environment, that over the state directory's files.

    The local admin token is used for the local server alone: a token is never sent to an address that was given otherwise.
    """
    folder = state_dir or state_dir_of(environ)
    local = _first_line(folder / "url")
    given = url or environ.get("SHOAL_URL")
    found = given or local or DEFAULT_URL
    own = token or environ.get("SHOAL_TOKEN")
    if not own and (given is None or given.rstrip("/") == (local or DEFAULT_URL).rstrip("/")):
        own = _first_line(folder / "admin.token")
    ca_file = environ.get("SHOAL_CA_FILE") or (str(folder / "ca.pem") if (folder / "ca.pem").exists() else None)
    source = "--url" if url else "$SHOAL_URL" if given else str(folder / "url") if local else "the default"
    return Settings(
        url=found,
        token=own or "",
        project=project or environ.get("SHOAL_PROJECT") or "default",
        state_dir=folder,
        ca_file=ca_file,
        source=source,
    )


def need_token(settings: Settings) -> Settings:
    """`settings`, if they have a token. Raises Unavailable with what to do where not."""
    if settings.token:
        return settings
    raise Unavailable(
        f"no token for {settings.url}: set $SHOAL_TOKEN, or start a local server with `shoal up` (state in {settings.state_dir})"
    )


def _first_line(path: Path) -> str | None:
    with suppress(OSError):
        text = path.read_text(encoding="utf-8").partition("\n")[0].strip()
        return text or None
    return None
