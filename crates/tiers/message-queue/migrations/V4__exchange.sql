-- What a batch usually is, in few statements: messages that are sent, and takers who all want the
-- first message by arrival of one queue. Each statement inside a function costs as much as several
-- rows, so the questions that concern all of them are asked at once.
--
-- `people` are the different clients among senders and takers. `leases_ms` is NULL where all take
-- away. Answers `done` = false, and has done nothing, where somebody is unknown or has said
-- goodbye: `send_many` and `take_many` say who. Anything else that is wrong is an error of PostgreSQL.
--
-- The messages that were taken come as columns, one element each. Element number i is for taker
-- number `places[i]`; where `places` is NULL anyone may have any of them.
CREATE FUNCTION exchange(
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
DECLARE
    -- A constant, which an index can be asked for.
    now_at timestamptz := clock_timestamp();
    waited_for boolean;
    due boolean;
    heads bigint;
    for_one boolean;
BEGIN
    SELECT (SELECT count(*) FROM client c WHERE c.id = ANY (people) AND c.present)
            = cardinality(people)
            AND (wanted_queue IS NULL OR EXISTS (SELECT FROM queue q WHERE q.id = wanted_queue))
            AND NOT EXISTS (SELECT FROM limits l, unnest(contents) AS c (content)
                WHERE char_length(c.content) > l.content_characters),
        EXISTS (SELECT FROM message m WHERE m.due_at <= now_at)
    INTO done, due;
    IF NOT done THEN
        RETURN;
    END IF;
    IF senders IS NOT NULL THEN
        WITH sent AS (
            INSERT INTO message (
                queue_id, sender_id, receiver_id, priority, sent_at, due_at, content)
            SELECT m.queue, m.sender, m.receiver, m.priority, clock_timestamp(),
                CASE WHEN m.delay_ms > 0
                    THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
                m.content
            FROM unnest(queues, senders, receivers, contents, priorities, delays_ms)
                AS m (queue, sender, receiver, content, priority, delay_ms)
            RETURNING message.id
        )
        SELECT array_agg(sent.id), EXISTS (SELECT FROM waiter w WHERE w.queue_id = ANY (queues))
        INTO sent_ids, waited_for FROM sent;
        IF waited_for THEN
            PERFORM tell_waiters(queues, senders, receivers);
        END IF;
    END IF;
    IF takers IS NULL THEN
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
                  AND NOT EXISTS (SELECT FROM message o
                    WHERE o.receiver_id = ANY (takers) AND o.queue_id = wanted_queue
                      AND o.due_at IS NULL)))
            RETURNING m.id, m.sender_id, m.priority, m.content, m.sent_at, m.deliveries
        )
        SELECT array_agg(g.id), array_agg(g.sender_id), array_agg(g.priority),
            array_agg(g.content), array_agg(g.sent_at), array_agg(g.deliveries)
        INTO ids, sender_ids, message_priorities, message_contents, sent_ats, deliveries
        FROM gone g;
        IF ids IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(t.place), array_agg(t.message_id), array_agg(t.sender_id),
        array_agg(t.receiver_id), array_agg(t.priority), array_agg(t.content),
        array_agg(to_timestamp(0) + t.sent_at_us * interval '1 us'), array_agg(t.deliveries),
        array_agg(t.lease_id)
    INTO places, ids, sender_ids, receiver_ids, message_priorities, message_contents, sent_ats,
        deliveries, lease_ids
    FROM take_chosen(lock_for(wanted_queue, takers), takers,
        coalesce(leases_ms, array_fill(0::bigint, ARRAY[cardinality(takers)]))) AS t;
END $$;

-- As it was, but for the case that all messages in front are for one of these clients each: those
-- are found together. One client twice among them is looked at one at a time.
CREATE OR REPLACE FUNCTION lock_for(wanted_queue bigint, clients bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    wanted integer := cardinality(clients);
    -- Unaddressed messages in front, as many as there are clients, and who sent them. One that is
    -- given away gets the sender NULL; all before `front` are.
    ids bigint[];
    senders bigint[];
    available integer;
    front integer := 1;
    addressed bigint[];
    chosen bigint[] := array_fill(NULL::bigint, ARRAY[wanted]);
    at integer;
BEGIN
    SELECT array_agg(h.id), array_agg(h.sender_id) INTO ids, senders
    FROM (
        SELECT m.id, m.sender_id FROM message m
        WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
        ORDER BY m.id + 0 LIMIT wanted FOR UPDATE SKIP LOCKED
    ) AS h;
    IF EXISTS (SELECT FROM message m
        WHERE m.receiver_id = ANY (clients) AND m.queue_id = wanted_queue AND m.due_at IS NULL) THEN
        IF ids IS NULL AND wanted = (SELECT count(DISTINCT c.id) FROM unnest(clients) AS c (id)) THEN
            RETURN (SELECT array_agg(h.id ORDER BY c.place)
                FROM unnest(clients) WITH ORDINALITY AS c (client, place)
                LEFT JOIN LATERAL (
                    SELECT m.id FROM message m
                    WHERE m.queue_id = wanted_queue AND m.receiver_id = c.client
                      AND m.due_at IS NULL
                    ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED) AS h ON true);
        END IF;
        SELECT array_agg(c.client) INTO addressed FROM unnest(clients) AS c (client)
        WHERE EXISTS (SELECT FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id = c.client AND m.due_at IS NULL);
    ELSIF ids IS NULL OR NOT senders && clients THEN
        -- The usual case: anyone of them may have any of these.
        RETURN coalesce(ids, '{}');
    END IF;
    available := coalesce(array_length(ids, 1), 0);
    FOR i IN 1 .. wanted LOOP
        IF addressed IS NOT NULL AND clients[i] = ANY (addressed) THEN
            chosen[i] := lock_one(
                wanted_queue, clients[i], NULL, false, array_remove(chosen, NULL));
            at := array_position(ids, chosen[i]);
            IF at IS NOT NULL THEN
                senders[at] := NULL;
            END IF;
            CONTINUE;
        END IF;
        WHILE front <= available AND senders[front] IS NULL LOOP
            front := front + 1;
        END LOOP;
        at := front;
        WHILE at <= available AND (senders[at] = clients[i]) IS NOT FALSE LOOP
            at := at + 1;
        END LOOP;
        IF at <= available THEN
            chosen[i] := ids[at];
            senders[at] := NULL;
        ELSIF available = wanted THEN
            chosen[i] := (SELECT h.id FROM lock_head(
                wanted_queue, clients[i], false, false, array_remove(chosen, NULL)) AS h);
        END IF;
    END LOOP;
    RETURN chosen;
END $$;
