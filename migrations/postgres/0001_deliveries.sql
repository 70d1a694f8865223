CREATE TABLE loam_tenants (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    created_at timestamptz      NOT NULL
);

CREATE TABLE event_deliveries (
    id               text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id        text COLLATE "C" NOT NULL,
    event_id         text COLLATE "C" NOT NULL,
    subscriber_key   text COLLATE "C" NOT NULL,
    event_name       text             NOT NULL,
    queue            text             NOT NULL,
    payload          json             NOT NULL,
    original_payload json,
    headers          text             NOT NULL DEFAULT '{}',
    status           text             NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts         bigint           NOT NULL DEFAULT 0,
    runs             bigint           NOT NULL DEFAULT 0,
    unfinished       bigint           NOT NULL DEFAULT 0,
    last_error       text,
    fingerprint      text,
    errors           text             NOT NULL DEFAULT '[]',
    next_attempt_at  timestamptz,
    delivered_at     timestamptz,
    discarded_at     timestamptz,
    duration_ms      bigint,
    created_at       timestamptz      NOT NULL,
    updated_at       timestamptz      NOT NULL,
    UNIQUE (tenant_id, event_id, subscriber_key)
) WITH (fillfactor = 70); -- a row is updated two or three times in its life

CREATE INDEX event_deliveries_due ON event_deliveries (tenant_id, coalesce(next_attempt_at, created_at), id)
    WHERE status = 'pending';
CREATE INDEX event_deliveries_pending ON event_deliveries (tenant_id, next_attempt_at NULLS FIRST, id) WHERE status = 'pending';
CREATE INDEX event_deliveries_dead ON event_deliveries (tenant_id, updated_at, id) WHERE status = 'dead';
CREATE INDEX event_deliveries_fingerprint ON event_deliveries (tenant_id, fingerprint) WHERE status = 'dead';
CREATE INDEX event_deliveries_delivered ON event_deliveries (delivered_at) WHERE status = 'delivered';

CREATE TABLE processed_events (
    tenant_id    text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    handler      text COLLATE "C" NOT NULL,
    status       text             NOT NULL CHECK (status IN ('in_progress', 'done')),
    started_at   bigint           NOT NULL,
    lease_until  bigint           NOT NULL,
    owner        text             NOT NULL,
    processed_at bigint,
    PRIMARY KEY (tenant_id, event_id, handler)
) WITH (fillfactor = 70);

CREATE INDEX processed_events_lease ON processed_events (lease_until) WHERE status = 'in_progress';
CREATE INDEX processed_events_done ON processed_events (processed_at) WHERE status = 'done';

CREATE TABLE loam_pauses (
    tenant_id      text COLLATE "C" NOT NULL,
    subscriber_key text COLLATE "C" NOT NULL,
    created_at     timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, subscriber_key)
);
