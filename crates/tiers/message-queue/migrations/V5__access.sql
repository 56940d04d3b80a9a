-- The same operations, written so that PostgreSQL has one way to perform them: its planner knows the
-- table as it was when it looked last, and of a queue that was empty then it believes that to walk
-- along any index is as good as to look something up.
--
-- Messages are looked up by id one by one or as an array, never by a join; and what else a message
-- looked up by id must be is written (`coalesce`) so that no other index answers to it.

-- Takes (lease_ms 0) or leases the messages that were chosen, one for each place, or none. Answers
-- those that there are.
CREATE OR REPLACE FUNCTION take_chosen(chosen bigint[], clients bigint[], leases_ms bigint[])
RETURNS TABLE (
    place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint,
    receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer,
    lease_id bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF 0 = ANY (leases_ms) THEN
        RETURN QUERY
        DELETE FROM message m
        WHERE m.id = ANY (ARRAY(
            SELECT a.id FROM unnest(chosen, leases_ms) AS a (id, lease_ms) WHERE a.lease_ms = 0))
        RETURNING array_position(chosen, m.id)::bigint, 0, m.id, m.queue_id, m.sender_id,
            m.receiver_id, m.priority, m.content,
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, NULL::bigint;
    END IF;
    IF 0 < ANY (leases_ms) THEN
        RETURN QUERY
        UPDATE message m
        SET leased_by = clients[array_position(chosen, m.id)], lease_id = nextval('lease_id'),
            deliveries = m.deliveries + 1,
            due_at = clock_timestamp() + leases_ms[array_position(chosen, m.id)] * interval '1 ms'
        WHERE m.id = ANY (ARRAY(
            SELECT a.id FROM unnest(chosen, leases_ms) AS a (id, lease_ms) WHERE a.lease_ms > 0))
        RETURNING array_position(chosen, m.id)::bigint, 0, m.id, m.queue_id, m.sender_id,
            m.receiver_id, m.priority, m.content,
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, m.lease_id;
    END IF;
END $$;

-- Locks a message that was seen, if it is still ready and nobody else has locked it.
CREATE FUNCTION lock_seen(wanted bigint, OUT id bigint, OUT priority integer)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT m.id, m.priority INTO id, priority FROM message m
    WHERE m.id = wanted AND coalesce(m.due_at, '-infinity') = '-infinity'
    FOR UPDATE SKIP LOCKED;
END $$;

-- As it was. By priority, too, it goes from sender to sender where many of the client's own messages
-- stand in front.
CREATE OR REPLACE FUNCTION lock_head(
    wanted_queue bigint, client bigint, for_me boolean, by_priority boolean, taken bigint[],
    OUT id bigint, OUT priority integer
) LANGUAGE plpgsql AS $$
DECLARE
    other bigint := 0;
    seen integer := 0;
    head record;
BEGIN
    IF for_me THEN
        IF by_priority THEN
            SELECT m.id, m.priority INTO id, priority FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id = client AND m.due_at IS NULL
              AND m.priority > 0 AND m.id <> ALL (taken)
            ORDER BY m.priority DESC, m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.receiver_id = client AND m.due_at IS NULL
          AND m.id <> ALL (taken)
        ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
        RETURN;
    END IF;
    -- The usual case: the head is somebody else's, or nearly.
    IF by_priority THEN
        FOR head IN
            SELECT m.id, m.sender_id FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
              AND m.priority > 0 AND m.id <> ALL (taken)
            ORDER BY m.priority DESC, m.id + 0 LIMIT 32
        LOOP
            seen := seen + 1;
            CONTINUE WHEN head.sender_id = client;
            SELECT * INTO id, priority FROM lock_seen(head.id);
            IF id IS NOT NULL THEN
                RETURN;
            END IF;
        END LOOP;
    END IF;
    IF seen < 32 THEN
        FOR head IN
            SELECT m.id, m.sender_id FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
              AND m.id <> ALL (taken)
            ORDER BY m.id + 0 LIMIT 32
        LOOP
            CONTINUE WHEN head.sender_id = client;
            SELECT * INTO id, priority FROM lock_seen(head.id);
            IF id IS NOT NULL THEN
                RETURN;
            END IF;
        END LOOP;
    END IF;
    -- Many of the client's own messages stand in front: go from sender to sender instead, which
    -- costs a look at each sender and not at each message.
    LOOP
        SELECT m.sender_id INTO other FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id > other AND m.due_at IS NULL
        ORDER BY m.sender_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN other = client;
        SELECT * INTO head FROM lock_head_of(wanted_queue, other, NULL, by_priority, taken);
        IF head.id IS NOT NULL AND (id IS NULL
            OR by_priority AND head.priority > priority
            OR head.id < id AND (NOT by_priority OR head.priority = priority)) THEN
            id := head.id;
            priority := head.priority;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION acknowledge_many(clients bigint[], messages bigint[], leases bigint[])
RETURNS TABLE (place bigint, code integer) LANGUAGE sql AS $$
    WITH held AS MATERIALIZED (
        SELECT a.place, h.id, h.at
        FROM unnest(clients, messages, leases) WITH ORDINALITY
            AS a (client, message, lease, place),
            LATERAL (
                SELECT m.id, m.ctid AS at FROM message m
                WHERE m.id = a.message AND coalesce(m.lease_id, 0) = a.lease
                  AND coalesce(m.leased_by, 0) = a.client
                  AND coalesce(m.due_at, '-infinity') > clock_timestamp()
                LIMIT 1 FOR UPDATE) AS h
    ), gone AS (
        DELETE FROM message WHERE ctid = ANY (ARRAY(SELECT h.at FROM held h))
    )
    -- The same acknowledgement twice in one batch: one of them did it.
    SELECT a.place, CASE
        WHEN a.place IN (SELECT min(h.place) FROM held h GROUP BY h.id) THEN 0 ELSE 8 END
    FROM unnest(messages) WITH ORDINALITY AS a (message, place)
    ORDER BY a.place
$$;

CREATE OR REPLACE FUNCTION extend_lease(client bigint, wanted bigint, lease bigint, lease_ms bigint)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    UPDATE message m SET due_at = clock_timestamp() + lease_ms * interval '1 ms'
    WHERE m.id = wanted AND coalesce(m.lease_id, 0) = lease AND coalesce(m.leased_by, 0) = client
      AND coalesce(m.due_at, '-infinity') > clock_timestamp();
    RETURN CASE WHEN FOUND THEN 0 ELSE 8 END;
END $$;

CREATE OR REPLACE FUNCTION return_message(
    client bigint, wanted bigint, lease bigint, delay_ms bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    of_queue bigint;
    of_receiver bigint;
BEGIN
    UPDATE message m SET leased_by = NULL, lease_id = NULL,
        due_at = CASE WHEN delay_ms > 0
            THEN clock_timestamp() + delay_ms * interval '1 ms' END
    WHERE m.id = wanted AND coalesce(m.lease_id, 0) = lease AND coalesce(m.leased_by, 0) = client
      AND coalesce(m.due_at, '-infinity') > clock_timestamp()
    RETURNING m.queue_id, m.receiver_id INTO of_queue, of_receiver;
    IF NOT FOUND THEN
        RETURN 8;
    END IF;
    PERFORM tell_waiters(ARRAY[of_queue], '{}', ARRAY[of_receiver]);
    RETURN 0;
END $$;

-- As it was, but for takes that find nothing: those after them in a batch found nothing either.
CREATE OR REPLACE FUNCTION take_many(
    clients bigint[], queues bigint[], senders bigint[], by_priority boolean[], leases_ms bigint[]
) RETURNS TABLE (
    place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint,
    receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer,
    lease_id bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    wanted integer := array_length(clients, 1);
    codes integer[];
    chosen bigint[] := array_fill(NULL::bigint, ARRAY[wanted]);
    taken bigint[] := '{}';
    one_group record;
    group_ids bigint[];
BEGIN
    PERFORM promote_due(100);
    SELECT array_agg(CASE
            WHEN c.id IS NULL THEN 1
            WHEN NOT c.present THEN 2
            WHEN q.id IS NULL THEN 3
            WHEN a.sender IS NOT NULL AND s.id IS NULL THEN 12
            ELSE 0 END ORDER BY a.place)
    INTO codes
    FROM unnest(clients, queues, senders) WITH ORDINALITY AS a (client, queue, sender, place)
        LEFT JOIN client c ON c.id = a.client
        LEFT JOIN queue q ON q.id = a.queue
        LEFT JOIN client s ON s.id = a.sender;

    FOR one_group IN
        SELECT a.queue, array_agg(a.client ORDER BY a.place) AS clients,
            array_agg(a.place ORDER BY a.place) AS places
        FROM unnest(clients, queues, senders, by_priority, codes) WITH ORDINALITY
            AS a (client, queue, sender, by_priority, code, place)
        WHERE a.code = 0 AND a.sender IS NULL AND NOT a.by_priority
        GROUP BY a.queue ORDER BY a.queue
    LOOP
        group_ids := lock_for(one_group.queue, one_group.clients);
        FOR i IN 1 .. cardinality(group_ids) LOOP
            chosen[one_group.places[i]] := group_ids[i];
        END LOOP;
    END LOOP;
    taken := array_remove(chosen, NULL);
    FOR i IN 1 .. wanted LOOP
        IF codes[i] = 0 AND (senders[i] IS NOT NULL OR by_priority[i]) THEN
            chosen[i] := lock_one(queues[i], clients[i], senders[i], by_priority[i], taken);
            IF chosen[i] IS NOT NULL THEN
                taken := taken || chosen[i];
            END IF;
        END IF;
    END LOOP;

    RETURN QUERY SELECT * FROM take_chosen(chosen, clients, leases_ms);
    RETURN QUERY
    SELECT a.place, a.code, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer,
        NULL::text, NULL::bigint, NULL::integer, NULL::bigint
    FROM unnest(codes) WITH ORDINALITY AS a (code, place)
    WHERE a.code <> 0;
END $$;

-- As they were.
CREATE OR REPLACE FUNCTION drop_older(ids bigint[], before timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    dropped bigint;
BEGIN
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m
        WHERE m.id = ANY (ids) AND coalesce(m.due_at, '-infinity') = '-infinity'
          AND m.sent_at < before
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

CREATE OR REPLACE FUNCTION queues_for(wanted bigint, every boolean, after bigint, at_most integer)
RETURNS TABLE (id bigint, name text) LANGUAGE sql STABLE AS $$
    SELECT q.id, q.name FROM queue q
    WHERE q.id > after
      AND CASE
        WHEN every THEN true
        WHEN (SELECT true FROM message m
            WHERE m.queue_id = q.id AND m.receiver_id = wanted AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT 1) THEN true
        ELSE (
            -- The head tells, nearly always: it is empty, or holds somebody else's.
            SELECT CASE
                WHEN bool_or(h.sender_id <> wanted) THEN true
                WHEN count(*) < 32 THEN false
                ELSE waits_of_others(q.id, wanted) END
            FROM (
                SELECT m.sender_id FROM message m
                WHERE m.queue_id = q.id AND m.receiver_id IS NULL AND m.due_at IS NULL
                ORDER BY m.id + 0 LIMIT 32
            ) AS h)
        END
    ORDER BY q.id
    LIMIT at_most
$$;

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
    SELECT array_agg(c.client) INTO addressed FROM unnest(clients) AS c (client)
    WHERE (SELECT true FROM message m
        WHERE m.receiver_id = c.client AND m.queue_id = wanted_queue AND m.due_at IS NULL
        ORDER BY m.id + 0 LIMIT 1);
    IF addressed IS NOT NULL THEN
        IF ids IS NULL AND wanted = (SELECT count(DISTINCT c.id) FROM unnest(clients) AS c (id)) THEN
            RETURN (SELECT array_agg(h.id ORDER BY c.place)
                FROM unnest(clients) WITH ORDINALITY AS c (client, place)
                LEFT JOIN LATERAL (
                    SELECT m.id FROM message m
                    WHERE m.queue_id = wanted_queue AND m.receiver_id = c.client
                      AND m.due_at IS NULL
                    ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED) AS h ON true);
        END IF;
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
