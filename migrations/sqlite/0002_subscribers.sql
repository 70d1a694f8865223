CREATE TABLE loam_subscribers (
    key        TEXT NOT NULL PRIMARY KEY,
    pattern    TEXT NOT NULL,
    queue      TEXT NOT NULL,
    aliases    TEXT NOT NULL DEFAULT '[]',
    first_seen TEXT NOT NULL,
    last_seen  TEXT NOT NULL,
    retired_at TEXT
) WITHOUT ROWID;
