"""Storage on SQLite and PostgreSQL: connections, schema, migrations and full-text search."""
