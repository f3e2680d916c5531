"""What Alembic runs; the connection comes from `store.schema.upgrade`, already inside the transaction that all steps share."""

from __future__ import annotations

from alembic import context

from shoal.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
