-- PostgreSQL asked for the queue and the clients of each message by itself: half of what a batch of sends
-- costs. The functions ask once for a batch, and hold the queue's row as it did. Clients are never
-- deleted; a queue is by `delete_queue` alone, which removes its messages itself.
ALTER TABLE message
    DROP CONSTRAINT message_queue_id_fkey,
    DROP CONSTRAINT message_sender_id_fkey,
    DROP CONSTRAINT message_receiver_id_fkey,
    DROP CONSTRAINT message_leased_by_fkey;

-- What a batch usually is, in one statement each: messages that are sent, and takers who all want the
-- first message by arrival of one queue. Each statement inside a function costs as much as several
-- rows, so the questions that concern all of them are asked at once.
--
-- `people` are the different clients of a batch. Both answer `done` = false, and have done nothing,
-- where one of them is not to succeed: `send_many` and `take_many` say which. A message to oneself is an
-- error of PostgreSQL.

-- `of_queues` are the different queues of a batch and `others` its different receivers; none of those
-- need be present.
CREATE FUNCTION send_together(
    people bigint[], of_queues bigint[], others bigint[],
    queues bigint[], senders bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[],
    OUT done boolean, OUT ids bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    waited_for boolean;
BEGIN
    SELECT (SELECT count(*) FROM client c WHERE c.id = ANY (people) AND c.present)
            = cardinality(people)
            AND (SELECT count(*) FROM client c WHERE c.id = ANY (others)) = cardinality(others)
            -- Held until the commit, so that nobody deletes them meanwhile.
            AND (SELECT count(*) FROM (
                    SELECT FROM queue q WHERE q.id = ANY (of_queues) FOR KEY SHARE) AS held)
                = cardinality(of_queues)
            AND NOT EXISTS (SELECT FROM limits l, unnest(contents) AS c (content)
                WHERE char_length(c.content) > l.content_characters)
    INTO done;
    IF NOT done THEN
        RETURN;
    END IF;
    WITH sent AS (
        INSERT INTO message (queue_id, sender_id, receiver_id, priority, sent_at, due_at, content)
        SELECT m.queue, m.sender, m.receiver, m.priority, clock_timestamp(),
            CASE WHEN m.delay_ms > 0
                THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
            m.content
        FROM unnest(queues, senders, receivers, contents, priorities, delays_ms)
            AS m (queue, sender, receiver, content, priority, delay_ms)
        RETURNING message.id
    )
    SELECT array_agg(sent.id), EXISTS (SELECT FROM waiter w WHERE w.queue_id = ANY (queues))
    INTO ids, waited_for FROM sent;
    IF waited_for THEN
        PERFORM tell_waiters(queues, senders, receivers);
    END IF;
END $$;

-- `leases_ms` is NULL where all take away. The messages come as columns, one element each. Element
-- number i is for taker number `places[i]`; where `places` is NULL anyone may have any of them.
CREATE FUNCTION take_together(
    people bigint[], wanted_queue bigint, takers bigint[], leases_ms bigint[],
    OUT done boolean, OUT places bigint[], OUT ids bigint[], OUT sender_ids bigint[],
    OUT receiver_ids bigint[], OUT priorities integer[], OUT contents text[],
    OUT sent_ats timestamptz[], OUT deliveries integer[], OUT lease_ids bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- A constant, which an index can be asked for.
    now_at timestamptz := clock_timestamp();
    due boolean;
BEGIN
    SELECT (SELECT count(*) FROM client c WHERE c.id = ANY (people) AND c.present)
            = cardinality(people)
            AND EXISTS (SELECT FROM queue q WHERE q.id = wanted_queue),
        EXISTS (SELECT FROM message m WHERE m.due_at <= now_at)
    INTO done, due;
    IF NOT done THEN
        RETURN;
    END IF;
    IF due THEN
        PERFORM promote_due(100);
    END IF;
    IF leases_ms IS NULL THEN
        -- The messages in front, unless one is of a taker or one waits for a taker alone.
        WITH head AS MATERIALIZED (
            SELECT m.ctid AS at, m.sender_id FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT cardinality(takers) FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM message m
            WHERE m.ctid = ANY (ARRAY(SELECT h.at FROM head h
                WHERE NOT EXISTS (SELECT FROM head o WHERE o.sender_id = ANY (takers))
                  AND NOT EXISTS (SELECT FROM unnest(takers) AS t (id)
                    WHERE (SELECT true FROM message o
                        WHERE o.receiver_id = t.id AND o.queue_id = wanted_queue
                          AND o.due_at IS NULL
                        ORDER BY o.id + 0 LIMIT 1))))
            RETURNING m.id, m.sender_id, m.priority, m.content, m.sent_at, m.deliveries
        )
        SELECT array_agg(g.id), array_agg(g.sender_id), array_agg(g.priority),
            array_agg(g.content), array_agg(g.sent_at), array_agg(g.deliveries)
        INTO ids, sender_ids, priorities, contents, sent_ats, deliveries
        FROM gone g;
        IF ids IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(t.place), array_agg(t.message_id), array_agg(t.sender_id),
        array_agg(t.receiver_id), array_agg(t.priority), array_agg(t.content),
        array_agg(to_timestamp(0) + t.sent_at_us * interval '1 us'), array_agg(t.deliveries),
        array_agg(t.lease_id)
    INTO places, ids, sender_ids, receiver_ids, priorities, contents, sent_ats, deliveries,
        lease_ids
    FROM take_chosen(lock_for(wanted_queue, takers), takers,
        coalesce(leases_ms, array_fill(0::bigint, ARRAY[cardinality(takers)]))) AS t;
END $$;

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

-- Puts back a message that was taken away by somebody who never heard of it: where it was, as it was.
-- 14 where its queue is gone.
CREATE FUNCTION put_back(
    message bigint, of_queue bigint, sender bigint, receiver bigint, its_priority integer,
    its_content text, sent_at_us bigint, its_deliveries integer
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM queue q WHERE q.id = of_queue FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 14;
    END IF;
    -- Not the limits of today: it was accepted once.
    INSERT INTO message (
        id, queue_id, sender_id, receiver_id, priority, content, sent_at, deliveries)
    OVERRIDING SYSTEM VALUE
    VALUES (message, of_queue, sender, receiver, its_priority, its_content,
        to_timestamp(0) + sent_at_us * interval '1 us', its_deliveries);
    PERFORM tell_waiters(ARRAY[of_queue], ARRAY[sender], ARRAY[receiver]);
    RETURN 0;
END $$;

-- For middlewares of the version before: as it was, by the two functions above. Where the sends are to
-- succeed and the takes are not, it fails like a broken key, so that nothing is done.
CREATE OR REPLACE FUNCTION exchange(
    people bigint[],
    queues bigint[], senders bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[],
    wanted_queue bigint, takers bigint[], leases_ms bigint[],
    OUT done boolean, OUT sent_ids bigint[],
    OUT places bigint[], OUT ids bigint[], OUT sender_ids bigint[], OUT receiver_ids bigint[],
    OUT message_priorities integer[], OUT message_contents text[], OUT sent_ats timestamptz[],
    OUT deliveries integer[], OUT lease_ids bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF senders IS NOT NULL THEN
        SELECT t.done, t.ids INTO done, sent_ids FROM send_together(
            ARRAY(SELECT DISTINCT s.id FROM unnest(senders) AS s (id)),
            ARRAY(SELECT DISTINCT q.id FROM unnest(queues) AS q (id)),
            ARRAY(SELECT DISTINCT r.id FROM unnest(receivers) AS r (id) WHERE r.id IS NOT NULL),
            queues, senders, receivers, contents, priorities, delays_ms) AS t;
        IF takers IS NULL OR NOT done THEN
            RETURN;
        END IF;
    END IF;
    SELECT t.done, t.places, t.ids, t.sender_ids, t.receiver_ids, t.priorities, t.contents,
        t.sent_ats, t.deliveries, t.lease_ids
    INTO done, places, ids, sender_ids, receiver_ids, message_priorities, message_contents,
        sent_ats, deliveries, lease_ids
    FROM take_together(ARRAY(SELECT DISTINCT c.id FROM unnest(takers) AS c (id)),
        wanted_queue, takers, leases_ms) AS t;
    IF sent_ids IS NOT NULL AND NOT done THEN
        RAISE foreign_key_violation;
    END IF;
END $$;
