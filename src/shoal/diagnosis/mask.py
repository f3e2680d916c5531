"""Secrets out of text before it is shown or stored: tokens, passwords, keys. What stands around them stays readable."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_NAMED: Final = re.compile(
    r"(?P<name>(?:[\w.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|client-key-data|"
    r"certificate-authority-data|client-certificate-data)[\w.-]*|\bauth|\bidentitytoken)[\"']?\s*[=:]\s*)"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"',;}{]{4,})(?P=quote)",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\b(?P<name>(?:authorization:\s*)?(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_URL: Final = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)[^\s/@]+(?=@)", re.IGNORECASE)
_KNOWN: Final = re.compile(
    r"\beyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]+)?|\b(?:gh[pousr]|github_pat)_\w{16,}|\bglpat-[\w-]{16,}|\bhf_[A-Za-z]{16,}\w*"
    r"|\bnvapi-[\w-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
)
_BLOCK: Final = re.compile(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL)


def mask(text: str) -> str:
    """`text` with what looks like a secret replaced by asterisks."""
    text = _BLOCK.sub(MASK, text)
    text = _BEARER.sub(rf"\g<name>{MASK}", text)
    text = _NAMED.sub(rf"\g<name>\g<quote>{MASK}\g<quote>", text)
    text = _URL.sub(rf"\g<name>{MASK}", text)
    return _KNOWN.sub(MASK, text)
