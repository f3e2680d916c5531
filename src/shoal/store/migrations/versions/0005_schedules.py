"""Schedules: jobs that are submitted again and again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A table of records like the others."""
    op.create_table(
        "schedule",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
