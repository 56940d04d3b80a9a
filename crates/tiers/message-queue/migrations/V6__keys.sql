-- PostgreSQL asked for the queue and the clients of each message by itself: half of what a batch of sends
-- costs. The functions ask once for a batch, and hold the queue's row as it did. Clients are never
-- deleted; a queue is by `delete_queue` alone, which removes its messages itself.
ALTER TABLE message
    DROP CONSTRAINT message_queue_id_fkey,
    DROP CONSTRAINT message_sender_id_fkey,
    DROP CONSTRAINT message_receiver_id_fkey,
    DROP CONSTRAINT message_leased_by_fkey;

CREATE OR REPLACE FUNCTION delete_queue(wanted bigint, with_messages boolean) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    -- Senders hold a key-share lock on the row until they commit: after this no message comes.
    PERFORM FROM queue WHERE id = wanted FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 3;
    END IF;
    IF NOT with_messages AND holds_messages(wanted) THEN
        RETURN 9;
    END IF;
    -- Those that wait, are leased, are delayed: each by its index.
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m WHERE m.queue_id = wanted AND m.due_at IS NULL
        ORDER BY m.sender_id FOR UPDATE));
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m WHERE m.queue_id = wanted AND m.leased_by IS NOT NULL
        ORDER BY m.leased_by FOR UPDATE));
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m
        WHERE m.queue_id = wanted AND m.due_at IS NOT NULL AND m.leased_by IS NULL
        ORDER BY m.sender_id FOR UPDATE));
    DELETE FROM queue WHERE id = wanted;
    RETURN 0;
END $$;

-- As it was; it looks for unknown queues and clients itself.
CREATE OR REPLACE FUNCTION send_many(
    clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[], requests uuid[], OUT codes integer[], OUT ids bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    -- Nearly always nothing is wrong with any of them; where something is, each is looked at.
    IF requests IS NULL THEN
        BEGIN
            SELECT t.ids INTO ids FROM send_together(
                ARRAY(SELECT DISTINCT c.id FROM unnest(clients) AS c (id)),
                ARRAY(SELECT DISTINCT q.id FROM unnest(queues) AS q (id)),
                ARRAY(SELECT DISTINCT r.id FROM unnest(receivers) AS r (id) WHERE r.id IS NOT NULL),
                queues, clients, receivers, contents, priorities, delays_ms) AS t;
        EXCEPTION WHEN integrity_constraint_violation THEN
            ids := NULL;
        END;
        IF ids IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    SELECT s.codes, s.ids INTO codes, ids FROM send_with_care(
        clients, queues, receivers, contents, priorities, delays_ms, requests) AS s;
    PERFORM tell_waiters(queues, clients, receivers);
END $$;

-- As it was, but for the queues, which it holds.
CREATE OR REPLACE FUNCTION send_with_care(
    clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[], requests uuid[], OUT codes integer[], OUT ids bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    longest integer := (SELECT content_characters FROM limits);
    -- The ids that were drawn; for repeated requests `ids` is what the first one got.
    drawn bigint[];
BEGIN
    -- Held until the commit, so that nobody deletes them meanwhile.
    PERFORM FROM queue q WHERE q.id = ANY (queues) FOR KEY SHARE;
    SELECT array_agg(a.code ORDER BY a.place),
        array_agg(CASE WHEN a.code = 0 THEN nextval('message_id_seq') END ORDER BY a.place)
    INTO codes, drawn
    FROM (
        SELECT m.place,
            CASE
                WHEN s.id IS NULL THEN 1
                WHEN NOT s.present THEN 2
                WHEN q.id IS NULL THEN 3
                WHEN m.receiver = m.client THEN 5
                WHEN m.receiver IS NOT NULL AND r.id IS NULL THEN 4
                WHEN char_length(m.content) > longest THEN 6
                ELSE 0
            END AS code
        FROM unnest(clients, queues, receivers, contents)
            WITH ORDINALITY AS m (client, queue, receiver, content, place)
            LEFT JOIN client s ON s.id = m.client
            LEFT JOIN queue q ON q.id = m.queue
            LEFT JOIN client r ON r.id = m.receiver
        ORDER BY m.place
    ) AS a;

    ids := drawn;
    IF requests IS NOT NULL THEN
        -- Whoever inserts the row sends; the others wait for its commit and answer the same.
        INSERT INTO answered (client_id, request_id, message_id)
        SELECT m.client, m.request, m.id
        FROM unnest(clients, requests, drawn, codes) AS m (client, request, id, code)
        WHERE m.request IS NOT NULL AND m.code = 0
        ON CONFLICT DO NOTHING;
        SELECT array_agg(coalesce(w.message_id, m.id) ORDER BY m.place) INTO ids
        FROM unnest(clients, requests, drawn) WITH ORDINALITY AS m (client, request, id, place)
            LEFT JOIN answered w ON w.client_id = m.client AND w.request_id = m.request;
    END IF;

    INSERT INTO message (
        id, queue_id, sender_id, receiver_id, priority, sent_at, due_at, content)
    OVERRIDING SYSTEM VALUE
    SELECT m.id, m.queue, m.client, m.receiver, m.priority, clock_timestamp(),
        CASE WHEN m.delay_ms > 0 THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
        m.content
    FROM unnest(clients, queues, receivers, contents, priorities, delays_ms, drawn, ids)
        AS m (client, queue, receiver, content, priority, delay_ms, drawn_id, id)
    WHERE m.id = m.drawn_id;
END $$;

-- As it was, but for the dead-letter queue, which it holds; one that is gone takes nothing.
CREATE OR REPLACE FUNCTION promote_due(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    -- A constant, which an index can be asked for: `clock_timestamp()` would be compared with every
    -- hidden message.
    now_at timestamptz := clock_timestamp();
    due record;
    promoted bigint := 0;
    told bigint[] := '{}';
    receivers bigint[] := '{}';
BEGIN
    IF NOT EXISTS (SELECT FROM message m WHERE m.due_at <= now_at) THEN
        RETURN 0;
    END IF;
    FOR due IN
        SELECT m.id, m.queue_id, m.lease_id IS NOT NULL AND m.deliveries >= q.max_deliveries AS dead,
            q.dead_letter_queue_id AS letters, m.receiver_id
        FROM message m JOIN queue q ON q.id = m.queue_id
        WHERE m.due_at <= now_at
        ORDER BY m.due_at
        LIMIT at_most
        FOR UPDATE OF m SKIP LOCKED
    LOOP
        promoted := promoted + 1;
        IF due.dead AND due.letters IS NOT NULL THEN
            PERFORM FROM queue q WHERE q.id = due.letters FOR KEY SHARE;
            IF NOT FOUND THEN
                due.letters := NULL;
            END IF;
        END IF;
        IF due.dead AND due.letters IS NULL THEN
            DELETE FROM message WHERE id = due.id;
        ELSE
            UPDATE message SET due_at = NULL, leased_by = NULL, lease_id = NULL,
                queue_id = CASE WHEN due.dead THEN due.letters ELSE queue_id END,
                receiver_id = CASE WHEN due.dead THEN NULL ELSE receiver_id END
            WHERE id = due.id;
            told := told || CASE WHEN due.dead THEN due.letters ELSE due.queue_id END;
            receivers := receivers || CASE WHEN due.dead THEN NULL ELSE due.receiver_id END;
        END IF;
    END LOOP;
    IF promoted > 0 THEN
        PERFORM tell_waiters(told, '{}', receivers);
    END IF;
    RETURN promoted;
END $$;
