"""A plug: serves the ports of core on SQLite and PostgreSQL, and knows no logic."""
