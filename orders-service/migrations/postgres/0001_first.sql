-- What each operation came to, and the highest fencing token seen for it. These rows outlive every open key.
CREATE TABLE operations (
    id             TEXT COLLATE "C" PRIMARY KEY,
    tenant         TEXT,
    kind           TEXT,
    request        BYTEA,
    token          BIGINT NOT NULL CHECK (token > 0),
    begun_token    BIGINT,
    answered_token BIGINT,
    label          TEXT CHECK (label IN ('final', 'no_effect', 'unknown')),
    result         BYTEA,
    created_at     BIGINT NOT NULL,
    CHECK ((label IS NULL) = (answered_token IS NULL))
);

-- The last CHECK is the promise of the shop: no seat is sold or held twice.
CREATE TABLE ticket_types (
    id       TEXT COLLATE "C" PRIMARY KEY,
    venue    TEXT NOT NULL,
    name     TEXT NOT NULL,
    price    BIGINT NOT NULL CHECK (price >= 0),
    currency TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    sold     BIGINT NOT NULL DEFAULT 0 CHECK (sold >= 0),
    held     BIGINT NOT NULL DEFAULT 0 CHECK (held >= 0),
    CHECK (sold + held <= capacity)
);

-- hold_until is when the seats of a pending order are free again: hold_expires_at, or later while a payment is undecided.
CREATE TABLE orders (
    id              TEXT COLLATE "C" PRIMARY KEY,
    tenant          TEXT NOT NULL,
    venue           TEXT NOT NULL,
    status          TEXT NOT NULL
        CHECK (status IN ('pending', 'paid', 'cancelled', 'expired', 'refund_pending', 'refunded')),
    total           BIGINT NOT NULL CHECK (total >= 0),
    currency        TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    hold_expires_at BIGINT NOT NULL,
    hold_until      BIGINT NOT NULL CHECK (hold_until >= hold_expires_at),
    paid_by         TEXT COLLATE "C"
);
CREATE INDEX orders_held ON orders (hold_until) WHERE status = 'pending';

CREATE TABLE order_items (
    order_id    TEXT COLLATE "C" NOT NULL REFERENCES orders (id),
    position    BIGINT NOT NULL,
    ticket_type TEXT COLLATE "C" NOT NULL REFERENCES ticket_types (id),
    quantity    BIGINT NOT NULL CHECK (quantity > 0),
    unit_price  BIGINT NOT NULL,
    PRIMARY KEY (order_id, position)
);

-- Where a ticket stands follows from its order and used_at.
CREATE TABLE tickets (
    id          TEXT COLLATE "C" PRIMARY KEY,
    order_id    TEXT COLLATE "C" NOT NULL REFERENCES orders (id),
    position    BIGINT NOT NULL,
    ticket_type TEXT COLLATE "C" NOT NULL,
    used_at     BIGINT
);
CREATE UNIQUE INDEX tickets_of_order ON tickets (order_id, position);

-- next_ask_at is set while the acquirer is still to be asked: every payment id that was sent is watched until decided.
CREATE TABLE payments (
    id           TEXT COLLATE "C" PRIMARY KEY,
    operation_id TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES operations (id),
    tenant       TEXT NOT NULL,
    order_id     TEXT COLLATE "C" NOT NULL REFERENCES orders (id),
    amount       BIGINT NOT NULL,
    currency     TEXT NOT NULL,
    method       TEXT NOT NULL,
    status       TEXT NOT NULL
        CHECK (status IN ('started', 'pending', 'approved', 'declined', 'closed', 'refund_pending', 'refunded')),
    created_at   BIGINT NOT NULL,
    closed_at    BIGINT,
    next_ask_at  BIGINT,
    asks         BIGINT NOT NULL DEFAULT 0,
    last_word    TEXT CHECK (last_word IN ('pending', 'not_found', 'mismatch', 'unreachable'))
);
-- One undecided payment an order.
CREATE UNIQUE INDEX payments_open ON payments (order_id) WHERE status IN ('started', 'pending');
CREATE INDEX payments_watched ON payments (next_ask_at) WHERE next_ask_at IS NOT NULL;

-- Outbox: each row is sent until the acquirer has acknowledged it.
CREATE TABLE refunds (
    id              TEXT COLLATE "C" PRIMARY KEY,
    payment_id      TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES payments (id),
    amount          BIGINT NOT NULL,
    currency        TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    next_try_at     BIGINT,
    tries           BIGINT NOT NULL DEFAULT 0,
    acknowledged_at BIGINT
);
CREATE INDEX refunds_due ON refunds (next_try_at) WHERE next_try_at IS NOT NULL;

-- Inbox: an event is applied once, in the transaction that meets its payment.
CREATE TABLE acquirer_events (
    id          TEXT COLLATE "C" PRIMARY KEY,
    type        TEXT NOT NULL,
    payment_id  TEXT COLLATE "C",
    amount      BIGINT,
    currency    TEXT,
    body        BYTEA NOT NULL,
    received_at BIGINT NOT NULL,
    applied_at  BIGINT
);
CREATE INDEX acquirer_events_waiting ON acquirer_events (payment_id) WHERE applied_at IS NULL;
