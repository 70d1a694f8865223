CREATE TABLE loam_tenants (
    id         TEXT NOT NULL PRIMARY KEY,
    created_at TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE event_deliveries (
    id               TEXT    NOT NULL PRIMARY KEY,
    tenant_id        TEXT    NOT NULL,
    event_id         TEXT    NOT NULL,
    subscriber_key   TEXT    NOT NULL,
    event_name       TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    payload          TEXT    NOT NULL,
    original_payload TEXT,
    headers          TEXT    NOT NULL DEFAULT '{}',
    status           TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    runs             INTEGER NOT NULL DEFAULT 0,
    unfinished       INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    fingerprint      TEXT,
    errors           TEXT    NOT NULL DEFAULT '[]',
    next_attempt_at  TEXT,
    delivered_at     TEXT,
    discarded_at     TEXT,
    duration_ms      INTEGER,
    created_at       TEXT    NOT NULL,
    updated_at       TEXT    NOT NULL,
    UNIQUE (tenant_id, event_id, subscriber_key)
);

CREATE INDEX event_deliveries_due ON event_deliveries (tenant_id, coalesce(next_attempt_at, created_at), id)
    WHERE status = 'pending';
CREATE INDEX event_deliveries_pending ON event_deliveries (tenant_id, next_attempt_at, id) WHERE status = 'pending';
CREATE INDEX event_deliveries_dead ON event_deliveries (tenant_id, updated_at, id) WHERE status = 'dead';
CREATE INDEX event_deliveries_fingerprint ON event_deliveries (tenant_id, fingerprint) WHERE status = 'dead';
CREATE INDEX event_deliveries_delivered ON event_deliveries (delivered_at) WHERE status = 'delivered';

CREATE TABLE processed_events (
    tenant_id    TEXT    NOT NULL,
    event_id     TEXT    NOT NULL,
    handler      TEXT    NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('in_progress', 'done')),
    started_at   INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL,
    owner        TEXT    NOT NULL,
    processed_at INTEGER,
    PRIMARY KEY (tenant_id, event_id, handler)
) WITHOUT ROWID;

CREATE INDEX processed_events_lease ON processed_events (lease_until) WHERE status = 'in_progress';
CREATE INDEX processed_events_done ON processed_events (processed_at) WHERE status = 'done';

CREATE TABLE loam_pauses (
    tenant_id      TEXT NOT NULL,
    subscriber_key TEXT NOT NULL,
    created_at     TEXT NOT NULL,
    PRIMARY KEY (tenant_id, subscriber_key)
) WITHOUT ROWID;
