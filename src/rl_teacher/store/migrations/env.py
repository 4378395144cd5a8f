"""Alembic entry point: migrate over a given connection, within its transaction."""

from alembic import context

from rl_teacher.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
    # SQLite cannot alter a table in place, so Alembic copies it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
