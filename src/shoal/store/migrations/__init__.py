"""One linear history of the schema, run by Alembic through `store.schema`. How to add a step: docs/adr/0002-store.md."""
