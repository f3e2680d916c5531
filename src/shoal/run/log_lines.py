"""
The server's log: one JSON object per line on standard error or in a file, through the standard library's logging.

Fields: `at` (ISO 8601, UTC), `level`, `logger`, `message`, whatever was given as `extra`, and `trace` for an exception. Turned down:
structlog, which is a dependency for what twenty lines do.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonLines(logging.Formatter):
    """See module."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _USUAL)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def start_logging(level: str = "info", file: Path | None = None) -> None:
    """Sends everything of `level` and up to standard error, or appends it to `file` (made with mode 0600)."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        file.touch(mode=0o600)
        handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their lines about starting and migrating say what ours say; their errors come through.
    for chatty in ("uvicorn", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
