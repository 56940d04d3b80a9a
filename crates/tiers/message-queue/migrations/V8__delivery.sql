-- What a request id stands for, messages that are put back, what a dead letter was, headers and binary
-- content, queues that pause and that keep an archive.

-- NULL in what versions before wrote: such an answer is for any request of its kind.
ALTER TABLE answered
    ADD COLUMN operation smallint,
    ADD COLUMN queue_id  bigint,
    ADD COLUMN digest    uuid;

-- Messages that were put back, so that to try again is harmless.
CREATE TABLE put_back (
    attempt uuid PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

ALTER TABLE queue
    ADD COLUMN paused      boolean NOT NULL DEFAULT false,
    ADD COLUMN archive_for interval CHECK (archive_for > interval '0');
CREATE INDEX queue_with_archive ON queue (id) WHERE archive_for IS NOT NULL;

ALTER TABLE message
    -- Binary content; `content` is empty then.
    ADD COLUMN body               bytea,
    -- An object of texts.
    ADD COLUMN headers            jsonb CHECK (octet_length(headers::text) <= 65536),
    -- Of dead letters: where they died, for whom they were, why, after how many leases, when.
    ADD COLUMN origin_queue_id    bigint,
    ADD COLUMN origin_receiver_id bigint,
    ADD COLUMN dead_reason        text,
    ADD COLUMN dead_deliveries    integer,
    ADD COLUMN dead_at            timestamptz;
-- Their senders may take them, too.
CREATE INDEX message_dead ON message (queue_id, sender_id, (id + 0))
    WHERE dead_at IS NOT NULL AND due_at IS NULL AND receiver_id IS NULL;

-- What was received or acknowledged in a queue that keeps an archive.
CREATE TABLE archive (
    queue_id    bigint NOT NULL,
    message_id  bigint NOT NULL,
    sender_id   bigint NOT NULL,
    receiver_id bigint,
    -- Who took it, and whether it was received (or acknowledged).
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
