"""Secrets go, words stay; what Xids mean and what is done about them."""

from __future__ import annotations

import pytest

from shoal.diagnosis.mask import mask
from shoal.diagnosis.xid_policy import PLUGIN_IGNORES, Policy, Step, decide_xid
from shoal.facts.xid import XIDS, Action


@pytest.mark.parametrize(
    "text",
    [
        "password = hunter2hunter2",
        'auth = "dXNlcjpwYXNzd29yZA=="',
        "Authorization: Bearer abcdef0123456789",
        "https://robot:s3cr3tvalue@registry.example/v2/",
        "token: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwx",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
        "AKIAABCDEFGHIJKLMNOP in a log",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    secrets = ("hunter2", "dXNlcjp", "abcdef0123456789", "s3cr3tvalue", "eyJzdWIi", "hf_abc", "MIIEpAI", "AKIAABC")
    masked = mask(text)
    assert "***" in masked
    assert not any(secret in masked for secret in secrets)


def test_what_decides_is_not_masked() -> None:
    lines = (
        "NVRM: Xid (PCI:0000:a1:00): 79",
        'no runtime for "nvidia" is configured',
        "nvidia.com/gpu: 8",
        "unresolvable CDI devices nvidia.com/gpu=all",
    )
    text = "\n".join(lines)
    assert mask(text) == text


def test_the_drivers_own_verdict_comes_first() -> None:
    assert decide_xid(94, recovery="GPU Reset Required, Drain and Reset").action is Action.DRAIN_AND_RESET
    assert decide_xid(79, recovery="None").action is Action.NOTHING


def test_a_code_that_returns_is_answered_more_sternly() -> None:
    assert decide_xid(48).action is Action.DRAIN_AND_RESET
    assert decide_xid(48, times=2).action is Action.REPLACE
    assert decide_xid(48, times=2).step is Step.CORDON_NODE


def test_before_ampere_nothing_is_contained() -> None:
    assert decide_xid(94).action is Action.RESTART_APPLICATION
    assert decide_xid(94, architecture="Volta").action is Action.DRAIN_AND_RESET


def test_an_unknown_code_holds_the_device() -> None:
    assert decide_xid(999).step is Step.HOLD_DEVICE


def test_other_tools_decide_otherwise() -> None:
    assert decide_xid(109).action is Action.RESET
    assert decide_xid(109, policy=Policy.DEVICE_PLUGIN).step is Step.LEAVE
    assert decide_xid(94, policy=Policy.DEVICE_PLUGIN).step is Step.HOLD_DEVICE
    assert decide_xid(94, times=9, policy=Policy.GPUD).action is Action.RESTART_APPLICATION
    assert XIDS.keys() >= PLUGIN_IGNORES


def test_codes_are_filed_under_themselves() -> None:
    assert all(row.code == code for code, row in XIDS.items())
    assert len(XIDS) > 90
