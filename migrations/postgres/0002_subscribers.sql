CREATE TABLE loam_subscribers (
    key        text COLLATE "C" NOT NULL PRIMARY KEY,
    pattern    text             NOT NULL,
    queue      text             NOT NULL,
    aliases    text             NOT NULL DEFAULT '[]',
    first_seen timestamptz      NOT NULL,
    last_seen  timestamptz      NOT NULL,
    retired_at timestamptz
);
