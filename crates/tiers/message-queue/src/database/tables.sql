-- The tables. They live in a schema of their own, so that a database that serves other purposes can hold them. A
-- change here raises `VERSION` of `schema.rs`: databases of another version are refused.
--
-- No table refers to another by a foreign key from `message`: PostgreSQL would look up the queue and the clients of each
-- message, half of what a batch of sends costs. The functions check once for a batch, and lock the queue's row.

CREATE TABLE schema_version (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    version    integer NOT NULL
);

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
    paused               boolean NOT NULL DEFAULT false,
    archive_for          interval CHECK (archive_for > interval '0'),
    CHECK (dead_letter_queue_id <> id)
);
CREATE INDEX queue_with_archive ON queue (id) WHERE archive_for IS NOT NULL;

-- Limits that both tiers enforce: one row.
CREATE TABLE limits (
    single_row         boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    content_characters integer NOT NULL CHECK (content_characters BETWEEN 1 AND 1048576),
    queues             integer NOT NULL CHECK (queues > 0)
);
INSERT INTO limits (content_characters, queues) VALUES (2000, 10000);

CREATE TABLE message (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id    bigint NOT NULL,
    sender_id   bigint NOT NULL,
    receiver_id bigint,
    priority    integer NOT NULL CHECK (priority BETWEEN 0 AND 1000),
    deliveries  integer NOT NULL DEFAULT 0,
    sent_at     timestamptz NOT NULL,
    -- NULL: ready. Otherwise hidden until then, delayed by its sender or leased.
    due_at      timestamptz,
    -- The client that holds the lease, and the lease it holds.
    leased_by   bigint,
    lease_id    bigint,
    content     text NOT NULL CHECK (char_length(content) <= 1048576),
    -- Binary content; `content` is empty then.
    body               bytea,
    -- A JSON object of texts.
    headers            jsonb CHECK (octet_length(headers::text) <= 65536),
    -- Of dead letters: where they died, for whom they were, why, after how many leases, when.
    origin_queue_id    bigint,
    origin_receiver_id bigint,
    dead_reason        text,
    dead_deliveries    integer,
    dead_at            timestamptz,
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
-- Hidden messages by queue, to count them; messages that only wait are in neither. Two, since the planner would
-- use an index of all that have a `due_at` to look for those that are due.
CREATE INDEX message_leased ON message (queue_id, leased_by) WHERE leased_by IS NOT NULL;
CREATE INDEX message_delayed ON message (queue_id, sender_id)
    WHERE due_at IS NOT NULL AND leased_by IS NULL;
-- Dead letters may be taken by their senders, too.
CREATE INDEX message_dead ON message (queue_id, sender_id, (id + 0))
    WHERE dead_at IS NOT NULL AND due_at IS NULL AND receiver_id IS NULL;
-- Clients that deregistered are few: one lookup tells whether any of a batch has.
CREATE INDEX client_absent ON client (id) WHERE NOT present;

CREATE SEQUENCE lease_id;

-- Answers to requests that carried a request_id, so that repeating them is harmless.
CREATE TABLE answered (
    client_id  bigint NOT NULL REFERENCES client,
    request_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id bigint,
    answer     jsonb,
    -- What the id stands for.
    operation  smallint NOT NULL,
    queue_id   bigint NOT NULL,
    digest     uuid NOT NULL,
    PRIMARY KEY (client_id, request_id)
) WITH (
    -- Rows come and go at the rate of the requests that carry an id.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
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

-- Of each connection, how many of its transactions took messages and were committed: the marker of a transaction that
-- took some (`mark_taking`). A row is updated in its page, half of which is free.
CREATE TABLE taking (
    taker  uuid PRIMARY KEY,
    number bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Put-backs that were done, so that trying one again is harmless.
CREATE TABLE put_back (
    attempt uuid PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Received and acknowledged messages of queues that keep an archive.
CREATE TABLE archive (
    queue_id    bigint NOT NULL,
    message_id  bigint NOT NULL,
    sender_id   bigint NOT NULL,
    receiver_id bigint,
    -- Who took it, and whether it was received (otherwise acknowledged).
    taken_by    bigint,
    received    boolean NOT NULL,
    priority    integer NOT NULL,
    deliveries  integer NOT NULL,
    sent_at     timestamptz NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    content     text NOT NULL,
    body        bytea,
    headers     jsonb,
    PRIMARY KEY (queue_id, message_id)
);
CREATE INDEX archive_by_age ON archive (queue_id, done_at);

-- Where the search for expired addressed messages has come to: one row. Unlogged: after a crash it begins again.
CREATE UNLOGGED TABLE retention_walk (
    single_row  boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    receiver_id bigint NOT NULL,
    queue_id    bigint NOT NULL
);

-- Space that is released when the disk is full: a vacuum frees space then, and needs some itself where it has to
-- create a map file beside a table or an index.
--
-- A `name` has a fixed length, so that the table has no TOAST table: truncating it creates one new file, which is
-- empty, where an index would need a page.
CREATE TABLE reserve (room name NOT NULL) WITH (fillfactor = 10, autovacuum_enabled = off);
