"""Flags win over the environment, that over the files of a local server; a local token goes to the local server alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.base.errors import Unavailable
from shoal.client.settings import DEFAULT_URL, find_settings, need_token, state_dir_of

LOCAL = "http://127.0.0.1:9999"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "url").write_text(f"{LOCAL}\n")
    (tmp_path / "admin.token").write_text("local-token\n")
    return tmp_path


def test_a_local_server_needs_no_settings(state: Path) -> None:
    found = find_settings({"SHOAL_STATE_DIR": str(state)})
    assert (found.url, found.token, found.project) == (LOCAL, "local-token", "default")
    assert found.source == str(state / "url")


def test_the_environment_wins_over_files(state: Path) -> None:
    found = find_settings({"SHOAL_STATE_DIR": str(state), "SHOAL_URL": "https://far:1", "SHOAL_TOKEN": "mine", "SHOAL_PROJECT": "vision"})
    assert (found.url, found.token, found.project, found.source) == ("https://far:1", "mine", "vision", "$SHOAL_URL")


def test_flags_win_over_the_environment(state: Path) -> None:
    environ = {"SHOAL_STATE_DIR": str(state), "SHOAL_URL": "https://far:1", "SHOAL_TOKEN": "mine"}
    found = find_settings(environ, url="https://near:2", token="given", project="audio")
    assert (found.url, found.token, found.project, found.source) == ("https://near:2", "given", "audio", "--url")


def test_the_local_token_is_never_sent_elsewhere(state: Path) -> None:
    found = find_settings({"SHOAL_STATE_DIR": str(state)}, url="https://far:1")
    assert found.token == ""
    with pytest.raises(Unavailable, match="SHOAL_TOKEN"):
        need_token(found)
    assert find_settings({"SHOAL_STATE_DIR": str(state)}, url=LOCAL + "/").token == "local-token"


def test_without_anything_it_is_the_default_address(tmp_path: Path) -> None:
    found = find_settings({"HOME": str(tmp_path)})
    assert (found.url, found.source) == (DEFAULT_URL, "the default")


def test_where_state_lies() -> None:
    assert state_dir_of({"SHOAL_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert state_dir_of({"XDG_STATE_HOME": "/b", "HOME": "/c"}) == Path("/b/shoal")
    assert state_dir_of({"HOME": "/c"}) == Path("/c/.local/state/shoal")
