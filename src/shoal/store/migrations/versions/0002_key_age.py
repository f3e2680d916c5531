"""Idempotency keys by age: those past their time are dropped, and finding them must not read the others."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """One index; rows stay as they are."""
    op.create_index("idempotency_by_age", "idempotency", ["created_ms"])
