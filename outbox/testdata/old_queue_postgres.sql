-- An event_queue as it was before Loam, with 1,000 rows: 250 of each status. Every 100th pending row cannot be read.
CREATE TABLE event_queue (
    id              bigserial PRIMARY KEY,
    event_type      text NOT NULL,
    payload         jsonb,
    status          text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL,
    next_attempt_at timestamptz,
    last_error      text
);
CREATE INDEX event_queue_pending ON event_queue (status, next_attempt_at);
INSERT INTO event_queue (id, event_type, payload, status, attempts, created_at, next_attempt_at, last_error)
SELECT 10 * i, 'billing.invoice.paid',
       CAST(CASE WHEN i % 100 = 4 THEN '["tenant_id", "acme"]' WHEN i % 100 = 8 THEN '{"n": 8}'
            ELSE '{"tenant_id": "acme", "n": ' || i || '}' END AS jsonb),
       CASE i % 4 WHEN 0 THEN 'pending' WHEN 1 THEN 'processing' WHEN 2 THEN 'done' ELSE 'dead_lettered' END,
       i % 4, TIMESTAMPTZ '2026-01-02 03:04:05Z',
       CASE WHEN i % 8 = 4 THEN TIMESTAMPTZ '2026-01-02 04:04:05Z' END, CASE WHEN i % 4 = 3 THEN 'it was refused' END
  FROM generate_series(1, 1000) AS i;
SELECT setval('event_queue_id_seq', 10000);
