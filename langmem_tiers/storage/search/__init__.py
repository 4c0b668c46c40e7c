"""Full-text search, the one part in which the databases speak differently."""
