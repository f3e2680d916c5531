"""What queues have used of late, for shares that look back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """One table of records."""
    op.create_table(
        "usage",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
