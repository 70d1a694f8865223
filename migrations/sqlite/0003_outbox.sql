CREATE TABLE event_queue (
    id              INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    event_id        TEXT,
    tenant_id       TEXT,
    event_type      TEXT,
    payload         TEXT,
    headers         TEXT    NOT NULL DEFAULT '{}',
    status          TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'done', 'dead_lettered')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    deferrals       INTEGER NOT NULL DEFAULT 0,
    claimed_at      TEXT,
    next_attempt_at TEXT,
    last_error      TEXT,
    origin          TEXT, -- of a message that a bus could not bring: its stream and sequence
    created_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')
);

CREATE UNIQUE INDEX event_queue_event ON event_queue (coalesce(tenant_id, ''), event_id) WHERE event_id IS NOT NULL;
CREATE INDEX event_queue_new ON event_queue (id) WHERE status = 'pending' AND next_attempt_at IS NULL;
CREATE INDEX event_queue_again ON event_queue (next_attempt_at, id) WHERE status = 'pending' AND next_attempt_at IS NOT NULL;
CREATE INDEX event_queue_claimed ON event_queue (claimed_at, id) WHERE status = 'processing';
CREATE INDEX event_queue_dead ON event_queue (id) WHERE status = 'dead_lettered';
CREATE INDEX event_queue_done ON event_queue (created_at, id) WHERE status = 'done';
CREATE UNIQUE INDEX event_queue_origin ON event_queue (origin) WHERE origin IS NOT NULL;
