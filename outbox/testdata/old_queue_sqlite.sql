-- An event_queue as it was before Loam, with 1,000 rows: 250 of each status. Every 100th pending row cannot be read.
CREATE TABLE event_queue (
    id              INTEGER PRIMARY KEY,
    event_type      TEXT NOT NULL,
    payload         TEXT NOT NULL,
    status          TEXT NOT NULL DEFAULT 'pending',
    attempts        INTEGER NOT NULL DEFAULT 0,
    created_at      TEXT NOT NULL,
    next_attempt_at TEXT,
    last_error      TEXT
);
CREATE INDEX event_queue_pending ON event_queue (status, next_attempt_at);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
INSERT INTO event_queue (id, event_type, payload, status, attempts, created_at, next_attempt_at, last_error)
SELECT 10 * i, 'billing.invoice.paid',
       CASE WHEN i % 100 = 4 THEN '{"tenant_id": "acme", "n": ' WHEN i % 100 = 8 THEN '{"n": 8}'
            ELSE '{"tenant_id": "acme", "n": ' || i || '}' END,
       CASE i % 4 WHEN 0 THEN 'pending' WHEN 1 THEN 'processing' WHEN 2 THEN 'done' ELSE 'dead_lettered' END,
       i % 4, CASE WHEN i % 2 = 0 THEN '2026-01-02T03:04:05Z' ELSE '2026-01-02 04:04:05+01:00' END,
       CASE WHEN i % 8 = 4 THEN '2026-01-02T04:04:05Z' END, CASE WHEN i % 4 = 3 THEN 'it was refused' END
  FROM n;
