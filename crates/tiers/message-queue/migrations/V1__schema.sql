-- Clients, queues and messages. Everything lives in a schema of its own, so that a database that
-- serves other purposes can hold it.

CREATE TABLE client (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (char_length(name) BETWEEN 1 AND 200),
    present    boolean NOT NULL DEFAULT true,
    hello_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE queue (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                 text NOT NULL UNIQUE CHECK (char_length(name) BETWEEN 1 AND 200),
    max_deliveries       integer CHECK (max_deliveries > 0),
    dead_letter_queue_id bigint REFERENCES queue ON DELETE SET NULL,
    retention            interval CHECK (retention > interval '0'),
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (dead_letter_queue_id <> id)
);

-- Limits that both tiers enforce: one row.
CREATE TABLE limits (
    single_row         boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    content_characters integer NOT NULL CHECK (content_characters BETWEEN 1 AND 1048576),
    queues             integer NOT NULL CHECK (queues > 0)
);
INSERT INTO limits (content_characters, queues) VALUES (2000, 10000);

CREATE TABLE message (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id    bigint NOT NULL REFERENCES queue ON DELETE CASCADE,
    sender_id   bigint NOT NULL REFERENCES client,
    receiver_id bigint REFERENCES client,
    priority    integer NOT NULL CHECK (priority BETWEEN 0 AND 1000),
    deliveries  integer NOT NULL DEFAULT 0,
    sent_at     timestamptz NOT NULL,
    -- NULL: ready. Otherwise hidden until then, delayed by its sender or leased.
    due_at      timestamptz,
    -- The client that holds the lease, and the lease it holds.
    leased_by   bigint REFERENCES client,
    lease_id    bigint,
    content     text NOT NULL CHECK (char_length(content) <= 1048576),
    CHECK (receiver_id <> sender_id),
    CHECK ((lease_id IS NULL) = (leased_by IS NULL)),
    CHECK (lease_id IS NULL OR due_at IS NOT NULL)
) WITH (
    -- A queue is all churn: vacuum by number of dead rows, not by share of a table that may hold
    -- a million waiting ones, and without pauses.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 200000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);

-- Hidden messages are in none of the access paths of those who receive, so that a million delayed
-- ones cost them nothing; nor are addressed ones in those of messages for anyone.
--
-- `id + 0` is the id, in an order that only these indexes have. By `id` the primary key would do as
-- well, in the eyes of a planner that knows neither client nor queue; and it would walk over a
-- million messages of others to the first that fits.
CREATE INDEX message_for_anyone ON message (queue_id, (id + 0))
    WHERE due_at IS NULL AND receiver_id IS NULL;
CREATE INDEX message_for_one ON message (receiver_id, queue_id, (id + 0))
    WHERE due_at IS NULL AND receiver_id IS NOT NULL;
CREATE INDEX message_for_anyone_by_priority ON message (queue_id, priority DESC, (id + 0))
    WHERE due_at IS NULL AND receiver_id IS NULL AND priority > 0;
CREATE INDEX message_for_one_by_priority ON message (receiver_id, queue_id, priority DESC, (id + 0))
    WHERE due_at IS NULL AND receiver_id IS NOT NULL AND priority > 0;
CREATE INDEX message_by_sender ON message (queue_id, sender_id, receiver_id, (id + 0))
    WHERE due_at IS NULL;
CREATE INDEX message_by_sender_and_priority
    ON message (queue_id, sender_id, receiver_id, priority DESC, (id + 0))
    WHERE due_at IS NULL AND priority > 0;
CREATE INDEX message_by_due ON message (due_at) WHERE due_at IS NOT NULL;
-- Those who said goodbye are few: whether any of a batch has costs one look.
CREATE INDEX client_absent ON client (id) WHERE NOT present;

CREATE SEQUENCE lease_id;

-- Answers to requests that carried a request_id, so that repeating them is harmless.
CREATE TABLE answered (
    client_id  bigint NOT NULL REFERENCES client,
    request_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id bigint,
    answer     jsonb,
    PRIMARY KEY (client_id, request_id)
);
CREATE INDEX answered_by_age ON answered (at);

-- Middlewares with clients that wait for a message of a queue. Senders notify only then. Unlogged:
-- after a crash every waiting client has to ask again anyway.
CREATE UNLOGGED TABLE waiter (
    middleware uuid NOT NULL,
    queue_id   bigint NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (queue_id, middleware)
);
