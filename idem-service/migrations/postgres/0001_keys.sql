-- One row per key: the register that every command compares and swaps.
--
-- scope and key compare byte by byte (COLLATE "C"): two keys are the same when their bytes are, and batches are sorted here and
-- in the program alike.
--
-- Of a page a quarter stays free: the next writing of a row lands on the page of the one before, which costs one page instead of
-- two, and is a HOT update when no indexed column changes (a row handed out to a reconciler).
CREATE TABLE idem_keys (
    scope                TEXT COLLATE "C" NOT NULL,
    key                  TEXT COLLATE "C" NOT NULL,
    operation_id         UUID             NOT NULL,
    fencing_token        BIGINT           NOT NULL,
    fingerprint          BYTEA            NOT NULL,
    attempt_id           UUID             NOT NULL,
    granted_by           TEXT             NOT NULL,
    -- 16 bytes each, latest last.
    past_attempts        BYTEA            NOT NULL,
    attempts             BIGINT           NOT NULL,
    retention_micros     BIGINT           NOT NULL,
    trace_context        TEXT             NOT NULL,
    state                TEXT             NOT NULL,
    lease_until          TIMESTAMPTZ,
    completed_at         TIMESTAMPTZ,
    expires_at           TIMESTAMPTZ,
    response_status      BIGINT,
    -- A JSON list of pairs, in order.
    response_headers     TEXT,
    response_body        BYTEA,
    response_resource_id TEXT,
    created_at           TIMESTAMPTZ      NOT NULL,
    updated_at           TIMESTAMPTZ      NOT NULL,
    version              BIGINT           NOT NULL,
    -- Hidden from reconcilers until then.
    handed_out_until     TIMESTAMPTZ,

    PRIMARY KEY (scope, key),
    CONSTRAINT idem_keys_state CHECK (state IN ('in_progress', 'in_doubt', 'completed', 'released')),
    CONSTRAINT idem_keys_granted_by CHECK (granted_by IN ('reserve', 'reclaim')),
    CONSTRAINT idem_keys_fingerprint CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT idem_keys_lease CHECK ((lease_until IS NOT NULL) = (state = 'in_progress')),
    CONSTRAINT idem_keys_retention CHECK ((expires_at IS NOT NULL) = (state IN ('completed', 'released'))),
    CONSTRAINT idem_keys_answer CHECK (
        (completed_at IS NOT NULL) = (state = 'completed')
        AND (response_status IS NOT NULL) = (state = 'completed')
        AND (response_headers IS NOT NULL) = (state = 'completed')
        AND (response_body IS NOT NULL) = (state = 'completed')
        AND (response_resource_id IS NOT NULL) = (state = 'completed')
    )
) WITH (fillfactor = 75);

-- Most answers stay in the row, uncompressed. A large one moves out of line as it is: compressing it would hold its row, and a
-- processor of the one machine that cannot be multiplied, for the milliseconds that this takes.
ALTER TABLE idem_keys ALTER COLUMN response_body SET STORAGE EXTERNAL;

-- What a reconciler looks for: held keys by the end of their lease, keys in doubt by their last change. Only open keys are in
-- it, so it stays small, and storing an answer adds nothing to it.
CREATE INDEX idem_keys_open ON idem_keys ((COALESCE(lease_until, updated_at)))
    WHERE state IN ('in_progress', 'in_doubt');

-- What the purge looks for. Only finished keys are in it, so reserving adds nothing to it.
CREATE INDEX idem_keys_finished ON idem_keys (expires_at)
    WHERE state IN ('completed', 'released');

-- Rows come, change once or twice and go: vacuum by a fixed number of dead rows rather than by a share of a large table.
ALTER TABLE idem_keys SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- Every key that was settled by hand.
CREATE TABLE idem_audit (
    id                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope                TEXT COLLATE "C" NOT NULL,
    key                  TEXT COLLATE "C" NOT NULL,
    operation_id         UUID             NOT NULL,
    -- None when there was no record before.
    fencing_token_before BIGINT,
    fencing_token_after  BIGINT           NOT NULL,
    action               TEXT             NOT NULL,
    reason               TEXT             NOT NULL,
    operator             TEXT             NOT NULL,
    service              TEXT             NOT NULL,
    at                   TIMESTAMPTZ      NOT NULL
);

CREATE INDEX idem_audit_key ON idem_audit (scope, key, id);
