"""Schema version 1, before full text: databases that have it must open for ever."""

SQLITE = (
    """CREATE TABLE lmt_namespaces (
        pk INTEGER NOT NULL,
        path TEXT NOT NULL,
        created_at VARCHAR(27) NOT NULL,
        PRIMARY KEY (pk),
        UNIQUE (path)
)""",
    """CREATE TABLE lmt_schema_versions (
        version INTEGER NOT NULL,
        applied_at VARCHAR(27) NOT NULL,
        PRIMARY KEY (version)
)""",
    """CREATE TABLE lmt_sessions (
        pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        namespace_pk INTEGER NOT NULL,
        name TEXT NOT NULL,
        created_at VARCHAR(27) NOT NULL,
        updated_at VARCHAR(27) NOT NULL,
        revision BIGINT NOT NULL,
        last_position BIGINT NOT NULL,
        message_count BIGINT NOT NULL,
        token_count BIGINT NOT NULL,
        compressed_count BIGINT NOT NULL,
        view_position BIGINT NOT NULL,
        view_message BIGINT NOT NULL,
        UNIQUE (namespace_pk, name),
        FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
)""",
    """CREATE INDEX lmt_sessions_by_age ON lmt_sessions (namespace_pk, pk)""",
    """CREATE TABLE lmt_messages (
        pk INTEGER NOT NULL,
        session_pk INTEGER NOT NULL,
        position BIGINT NOT NULL,
        id TEXT NOT NULL,
        role VARCHAR(9) NOT NULL,
        content TEXT NOT NULL,
        created_at VARCHAR(27) NOT NULL,
        token_count BIGINT NOT NULL,
        token_counter TEXT NOT NULL,
        extra TEXT,
        payload TEXT,
        PRIMARY KEY (pk),
        UNIQUE (session_pk, id),
        FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
)""",
    """CREATE INDEX lmt_messages_by_position ON lmt_messages (session_pk, position, pk)""",
)

POSTGRESQL = (
    """CREATE TABLE lmt_namespaces (
        pk BIGSERIAL NOT NULL,
        path TEXT COLLATE "C" NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (pk),
        UNIQUE (path)
)""",
    """CREATE TABLE lmt_schema_versions (
        version INTEGER NOT NULL,
        applied_at TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (version)
)""",
    """CREATE TABLE lmt_sessions (
        pk BIGSERIAL NOT NULL,
        namespace_pk BIGINT NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
        revision BIGINT NOT NULL,
        last_position BIGINT NOT NULL,
        message_count BIGINT NOT NULL,
        token_count BIGINT NOT NULL,
        compressed_count BIGINT NOT NULL,
        view_position BIGINT NOT NULL,
        view_message BIGINT NOT NULL,
        PRIMARY KEY (pk),
        UNIQUE (namespace_pk, name),
        FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
)""",
    """CREATE INDEX lmt_sessions_by_age ON lmt_sessions (namespace_pk, pk)""",
    """CREATE TABLE lmt_messages (
        pk BIGSERIAL NOT NULL,
        session_pk BIGINT NOT NULL,
        position BIGINT NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        role VARCHAR(9) NOT NULL,
        content TEXT NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE NOT NULL,
        token_count BIGINT NOT NULL,
        token_counter TEXT NOT NULL,
        extra TEXT,
        payload TEXT,
        PRIMARY KEY (pk),
        UNIQUE (session_pk, id),
        FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
)""",
    """CREATE INDEX lmt_messages_by_position ON lmt_messages (session_pk, position, pk)""",
)
