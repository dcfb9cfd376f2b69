-- One row per key: the register that every command compares and swaps. Instants are microseconds since 1970, ids are UUIDs as
-- text, so that the shell of SQLite shows them as every log does.
CREATE TABLE idem_keys (
    scope                TEXT    NOT NULL,
    key                  TEXT    NOT NULL,
    operation_id         TEXT    NOT NULL,
    fencing_token        INTEGER NOT NULL,
    fingerprint          BLOB    NOT NULL,
    attempt_id           TEXT    NOT NULL,
    granted_by           TEXT    NOT NULL,
    -- 16 bytes each, latest last.
    past_attempts        BLOB    NOT NULL,
    attempts             INTEGER NOT NULL,
    retention_micros     INTEGER NOT NULL,
    trace_context        TEXT    NOT NULL,
    state                TEXT    NOT NULL,
    lease_until          INTEGER,
    completed_at         INTEGER,
    expires_at           INTEGER,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    version              INTEGER NOT NULL,
    -- Hidden from reconcilers until then.
    handed_out_until     INTEGER,
    -- The answer comes last: what stands behind a large value costs a walk through all of it.
    response_status      INTEGER,
    -- A JSON list of pairs, in order.
    response_headers     TEXT,
    response_resource_id TEXT,
    response_body        BLOB,

    PRIMARY KEY (scope, key),
    CONSTRAINT idem_keys_state CHECK (state IN ('in_progress', 'in_doubt', 'completed', 'released')),
    CONSTRAINT idem_keys_granted_by CHECK (granted_by IN ('reserve', 'reclaim')),
    CONSTRAINT idem_keys_fingerprint CHECK (length(fingerprint) = 32),
    CONSTRAINT idem_keys_lease CHECK ((lease_until IS NOT NULL) = (state = 'in_progress')),
    CONSTRAINT idem_keys_retention CHECK ((expires_at IS NOT NULL) = (state IN ('completed', 'released'))),
    CONSTRAINT idem_keys_answer CHECK (
        (completed_at IS NOT NULL) = (state = 'completed')
        AND (response_status IS NOT NULL) = (state = 'completed')
        AND (response_headers IS NOT NULL) = (state = 'completed')
        AND (response_resource_id IS NOT NULL) = (state = 'completed')
        AND (response_body IS NOT NULL) = (state = 'completed')
    )
) STRICT;

-- What a reconciler looks for: held keys by the end of their lease, keys in doubt by their last change. Only open keys are in it.
CREATE INDEX idem_keys_open ON idem_keys (COALESCE(lease_until, updated_at))
    WHERE state IN ('in_progress', 'in_doubt');

-- What the purge looks for. Only finished keys are in it.
CREATE INDEX idem_keys_finished ON idem_keys (expires_at)
    WHERE state IN ('completed', 'released');

-- Every key that was settled by hand.
CREATE TABLE idem_audit (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    scope                TEXT    NOT NULL,
    key                  TEXT    NOT NULL,
    operation_id         TEXT    NOT NULL,
    -- None when there was no record before.
    fencing_token_before INTEGER,
    fencing_token_after  INTEGER NOT NULL,
    action               TEXT    NOT NULL,
    reason               TEXT    NOT NULL,
    operator             TEXT    NOT NULL,
    service              TEXT    NOT NULL,
    at                   INTEGER NOT NULL
) STRICT;

CREATE INDEX idem_audit_key ON idem_audit (scope, key, id);
