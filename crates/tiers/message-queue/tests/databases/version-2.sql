CREATE SCHEMA kendall_queue;
CREATE FUNCTION kendall_queue.acknowledge_many(clients bigint[], messages bigint[], leases bigint[]) RETURNS TABLE(place bigint, code integer)
    LANGUAGE sql
    AS $$
    WITH asked AS (
        SELECT a.* FROM unnest(clients, messages, leases) WITH ORDINALITY
            AS a (client, message, lease, place)
    ), gone AS (
        DELETE FROM message m USING asked a
        WHERE m.id = a.message AND m.lease_id = a.lease AND m.leased_by = a.client
          AND m.due_at > clock_timestamp()
        RETURNING m.id, m.lease_id
    ), first AS (
        -- The same acknowledgement twice in one batch: one of them did it.
        SELECT min(a.place) AS place FROM asked a JOIN gone g
            ON g.id = a.message AND g.lease_id = a.lease
        GROUP BY a.message
    )
    SELECT a.place, CASE WHEN f.place IS NULL THEN 8 ELSE 0 END
    FROM asked a LEFT JOIN first f ON f.place = a.place
    ORDER BY a.place
$$;
CREATE FUNCTION kendall_queue.client_code(wanted bigint) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce((SELECT CASE WHEN present THEN 0 ELSE 2 END FROM client WHERE id = wanted), 1)
$$;
CREATE FUNCTION kendall_queue.create_queue(wanted text, deliveries integer, dead_letter bigint, keep_ms bigint, OUT code integer, OUT queue_id bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    code := 0;
    IF dead_letter IS NOT NULL AND NOT EXISTS (SELECT FROM queue WHERE id = dead_letter) THEN
        code := 13;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM queue) >= (SELECT queues FROM limits) THEN
        code := 11;
        RETURN;
    END IF;
    INSERT INTO queue (name, max_deliveries, dead_letter_queue_id, retention)
    VALUES (wanted, deliveries, dead_letter, keep_ms * interval '1 ms')
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO queue_id;
    IF queue_id IS NULL THEN
        code := 10;
    END IF;
END $$;
CREATE FUNCTION kendall_queue.delete_queue(wanted bigint, with_messages boolean) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- Senders hold a key-share lock on the row until they commit: after this no message comes.
    PERFORM FROM queue WHERE id = wanted FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 3;
    END IF;
    IF NOT with_messages AND EXISTS (SELECT FROM message WHERE queue_id = wanted) THEN
        RETURN 9;
    END IF;
    DELETE FROM queue WHERE id = wanted;
    RETURN 0;
END $$;
CREATE FUNCTION kendall_queue.extend_lease(client bigint, wanted bigint, lease bigint, lease_ms bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE message m SET due_at = clock_timestamp() + lease_ms * interval '1 ms'
    WHERE m.id = wanted AND m.lease_id = lease AND m.leased_by = client
      AND m.due_at > clock_timestamp();
    RETURN CASE WHEN FOUND THEN 0 ELSE 8 END;
END $$;
CREATE FUNCTION kendall_queue.goodbye(wanted bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE client SET present = false WHERE id = wanted AND present;
    IF FOUND THEN
        RETURN 0;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM client WHERE id = wanted) THEN 2 ELSE 1 END;
END $$;
CREATE FUNCTION kendall_queue.hello(wanted text) RETURNS bigint
    LANGUAGE sql
    AS $$
    INSERT INTO client (name) VALUES (wanted)
    ON CONFLICT (name) DO UPDATE SET present = true, hello_at = clock_timestamp()
    RETURNING id
$$;
CREATE FUNCTION kendall_queue.keep_house(at_most integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    done bigint := promote_due(at_most);
    kept record;
    step bigint;
BEGIN
    FOR kept IN SELECT q.id, q.retention FROM queue q WHERE q.retention IS NOT NULL LOOP
        DELETE FROM message WHERE id IN (
            SELECT m.id FROM message m
            WHERE m.queue_id = kept.id AND m.due_at IS NULL
              AND m.sent_at < clock_timestamp() - kept.retention
            LIMIT at_most FOR UPDATE SKIP LOCKED);
        GET DIAGNOSTICS step = ROW_COUNT;
        done := done + step;
    END LOOP;
    DELETE FROM answered WHERE (client_id, request_id) IN (
        SELECT a.client_id, a.request_id FROM answered a
        WHERE a.at < clock_timestamp() - interval '10 min' LIMIT at_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS step = ROW_COUNT;
    DELETE FROM waiter WHERE seen_at < clock_timestamp() - interval '1 min';
    RETURN done + step;
END $$;
CREATE FUNCTION kendall_queue.lock_for(wanted_queue bigint, clients bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    wanted integer := array_length(clients, 1);
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
            -- Rare enough to be chosen one at a time.
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
CREATE FUNCTION kendall_queue.lock_head(wanted_queue bigint, client bigint, for_me boolean, by_priority boolean, taken bigint[], OUT id bigint, OUT priority integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    other bigint := 0;
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
    IF by_priority THEN
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
          AND m.priority > 0 AND m.sender_id <> client AND m.id <> ALL (taken)
        ORDER BY m.priority DESC, m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    -- The usual case: the head is somebody else's, or nearly.
    SELECT m.id, m.priority INTO id, priority FROM message m
    WHERE m.id IN (
        SELECT n.id FROM message n
        WHERE n.queue_id = wanted_queue AND n.receiver_id IS NULL AND n.due_at IS NULL
          AND n.id <> ALL (taken)
        ORDER BY n.id + 0 LIMIT 32)
      AND m.sender_id <> client AND m.due_at IS NULL
    ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN;
    END IF;
    -- Many of the client's own messages stand in front: go from sender to sender instead, which
    -- costs a look at each sender and not at each message.
    LOOP
        SELECT m.sender_id INTO other FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id > other AND m.due_at IS NULL
        ORDER BY m.sender_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN other = client;
        SELECT * INTO head FROM lock_head_of(wanted_queue, other, NULL, false, taken);
        IF head.id IS NOT NULL AND (id IS NULL OR head.id < id) THEN
            id := head.id;
            priority := head.priority;
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION kendall_queue.lock_head_of(wanted_queue bigint, sender bigint, receiver bigint, by_priority boolean, taken bigint[], OUT id bigint, OUT priority integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF by_priority AND receiver IS NULL THEN
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id = sender AND m.receiver_id IS NULL
          AND m.due_at IS NULL AND m.priority > 0 AND m.id <> ALL (taken)
        ORDER BY m.receiver_id, m.priority DESC, m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSIF by_priority THEN
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id = sender AND m.receiver_id = receiver
          AND m.due_at IS NULL AND m.priority > 0 AND m.id <> ALL (taken)
        ORDER BY m.priority DESC, m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF id IS NOT NULL THEN
        RETURN;
    ELSIF receiver IS NULL THEN
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id = sender AND m.receiver_id IS NULL
          AND m.due_at IS NULL AND m.id <> ALL (taken)
        ORDER BY m.receiver_id, m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSE
        SELECT m.id, m.priority INTO id, priority FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id = sender AND m.receiver_id = receiver
          AND m.due_at IS NULL AND m.id <> ALL (taken)
        ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
END $$;
CREATE FUNCTION kendall_queue.lock_one(wanted_queue bigint, client bigint, sender bigint, by_priority boolean, taken bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    mine record;
    anyones record;
BEGIN
    IF sender IS NULL THEN
        SELECT * INTO mine FROM lock_head(wanted_queue, client, true, by_priority, taken);
        SELECT * INTO anyones FROM lock_head(wanted_queue, client, false, by_priority, taken);
    ELSIF sender = client THEN
        RETURN NULL;
    ELSE
        SELECT * INTO mine FROM lock_head_of(wanted_queue, sender, client, by_priority, taken);
        SELECT * INTO anyones FROM lock_head_of(wanted_queue, sender, NULL, by_priority, taken);
    END IF;
    IF mine.id IS NULL OR anyones.id IS NULL THEN
        RETURN coalesce(mine.id, anyones.id);
    END IF;
    IF by_priority AND mine.priority <> anyones.priority THEN
        RETURN CASE WHEN mine.priority > anyones.priority THEN mine.id ELSE anyones.id END;
    END IF;
    RETURN least(mine.id, anyones.id);
END $$;
CREATE TABLE kendall_queue.message (
    id bigint NOT NULL,
    queue_id bigint NOT NULL,
    sender_id bigint NOT NULL,
    receiver_id bigint,
    priority integer NOT NULL,
    deliveries integer DEFAULT 0 NOT NULL,
    sent_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    leased_by bigint,
    lease_id bigint,
    content text NOT NULL,
    CONSTRAINT message_check CHECK ((receiver_id <> sender_id)),
    CONSTRAINT message_check1 CHECK (((lease_id IS NULL) = (leased_by IS NULL))),
    CONSTRAINT message_check2 CHECK (((lease_id IS NULL) OR (due_at IS NOT NULL))),
    CONSTRAINT message_content_check CHECK ((char_length(content) <= 1048576)),
    CONSTRAINT message_priority_check CHECK (((priority >= 0) AND (priority <= 1000)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='200000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0');
CREATE FUNCTION kendall_queue.peek(wanted_queue bigint, client bigint, sender bigint, by_priority boolean) RETURNS SETOF kendall_queue.message
    LANGUAGE plpgsql
    AS $$
DECLARE
    head bigint;
BEGIN
    -- The same choice as a receive makes; the locks are given up with this transaction.
    head := lock_one(wanted_queue, client, sender, by_priority, '{}');
    RETURN QUERY SELECT * FROM message WHERE id = head;
END $$;
CREATE FUNCTION kendall_queue.promote_due(at_most integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION kendall_queue.purge_some(wanted bigint, at_most integer) RETURNS bigint
    LANGUAGE sql
    AS $$
    WITH gone AS (
        DELETE FROM message WHERE id IN (
            SELECT id FROM message WHERE queue_id = wanted AND due_at IS NULL
            LIMIT at_most FOR UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*) FROM gone
$$;
CREATE FUNCTION kendall_queue.queue_statistics(wanted bigint, at_most bigint) RETURNS TABLE(name text, waiting bigint, leased bigint, delayed bigint, oldest_age_ms bigint, max_deliveries integer, dead_letter_queue_id bigint, retention_ms bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT q.name,
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.queue_id = q.id AND m.due_at IS NULL LIMIT at_most) AS few),
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.due_at IS NOT NULL AND m.queue_id = q.id AND m.lease_id IS NOT NULL
            LIMIT at_most) AS few),
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.due_at IS NOT NULL AND m.queue_id = q.id AND m.lease_id IS NULL
            LIMIT at_most) AS few),
        coalesce((SELECT (extract(epoch FROM clock_timestamp() - m.sent_at) * 1000)::bigint
            FROM message m WHERE m.queue_id = q.id AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT 1), 0),
        q.max_deliveries, q.dead_letter_queue_id,
        (extract(epoch FROM q.retention) * 1000)::bigint
    FROM queue q WHERE q.id = wanted
$$;
CREATE FUNCTION kendall_queue.queues_for(wanted bigint, every boolean, after bigint, at_most integer) RETURNS TABLE(id bigint, name text)
    LANGUAGE sql STABLE
    AS $$
    SELECT q.id, q.name FROM queue q
    WHERE q.id > after
      AND (every
        OR EXISTS (SELECT FROM message m
                   WHERE m.queue_id = q.id AND m.receiver_id = wanted AND m.due_at IS NULL)
        OR EXISTS (SELECT FROM message m
                   WHERE m.queue_id = q.id AND m.receiver_id IS NULL AND m.due_at IS NULL
                     AND m.sender_id <> wanted))
    ORDER BY q.id
    LIMIT at_most
$$;
CREATE FUNCTION kendall_queue.return_message(client bigint, wanted bigint, lease bigint, delay_ms bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    of_queue bigint;
    of_receiver bigint;
BEGIN
    UPDATE message m SET leased_by = NULL, lease_id = NULL,
        due_at = CASE WHEN delay_ms > 0
            THEN clock_timestamp() + delay_ms * interval '1 ms' END
    WHERE m.id = wanted AND m.lease_id = lease AND m.leased_by = client
      AND m.due_at > clock_timestamp()
    RETURNING m.queue_id, m.receiver_id INTO of_queue, of_receiver;
    IF NOT FOUND THEN
        RETURN 8;
    END IF;
    PERFORM tell_waiters(ARRAY[of_queue], '{}', ARRAY[of_receiver]);
    RETURN 0;
END $$;
CREATE FUNCTION kendall_queue.send_many(clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[], delays_ms bigint[], requests uuid[], OUT codes integer[], OUT ids bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- Nearly always nothing is wrong with any of them. The keys and checks of the table say so at
    -- no further cost; where they do not, each message is looked at.
    IF requests IS NULL THEN
        BEGIN
            WITH sent AS (
                INSERT INTO message (
                    queue_id, sender_id, receiver_id, priority, sent_at, due_at, content)
                SELECT m.queue, m.client, m.receiver, m.priority, clock_timestamp(),
                    CASE WHEN m.delay_ms > 0
                        THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
                    m.content
                FROM unnest(queues, clients, receivers, contents, priorities, delays_ms)
                    AS m (queue, client, receiver, content, priority, delay_ms)
                WHERE NOT EXISTS (SELECT FROM client c WHERE NOT c.present AND c.id = ANY (clients))
                  AND NOT EXISTS (SELECT FROM limits l, unnest(contents) AS c (content)
                      WHERE char_length(c.content) > l.content_characters)
                RETURNING message.id
            )
            SELECT array_agg(sent.id) INTO ids FROM sent;
        EXCEPTION WHEN integrity_constraint_violation THEN
            ids := NULL;
        END;
    END IF;
    IF ids IS NULL THEN
        SELECT s.codes, s.ids INTO codes, ids FROM send_with_care(
            clients, queues, receivers, contents, priorities, delays_ms, requests) AS s;
    END IF;
    IF EXISTS (SELECT FROM waiter w WHERE w.queue_id = ANY (queues)) THEN
        PERFORM tell_waiters(queues, clients, receivers);
    END IF;
END $$;
CREATE FUNCTION kendall_queue.send_with_care(clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[], delays_ms bigint[], requests uuid[], OUT codes integer[], OUT ids bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    longest integer := (SELECT content_characters FROM limits);
    -- The ids that were drawn; for repeated requests `ids` is what the first one got.
    drawn bigint[];
BEGIN
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
CREATE FUNCTION kendall_queue.take_chosen(chosen bigint[], clients bigint[], leases_ms bigint[]) RETURNS TABLE(place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint, receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer, lease_id bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
BEGIN
    IF 0 = ANY (leases_ms) THEN
        RETURN QUERY
        DELETE FROM message m
        USING unnest(chosen, leases_ms) WITH ORDINALITY AS a (id, lease_ms, place)
        WHERE m.id = a.id AND a.lease_ms = 0
        RETURNING a.place, 0, m.id, m.queue_id, m.sender_id, m.receiver_id, m.priority, m.content,
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, NULL::bigint;
    END IF;
    IF 0 < ANY (leases_ms) THEN
        RETURN QUERY
        UPDATE message m
        SET leased_by = a.client, lease_id = nextval('lease_id'), deliveries = m.deliveries + 1,
            due_at = clock_timestamp() + a.lease_ms * interval '1 ms'
        FROM unnest(chosen, clients, leases_ms) WITH ORDINALITY AS a (id, client, lease_ms, place)
        WHERE m.id = a.id AND a.lease_ms > 0
        RETURNING a.place, 0, m.id, m.queue_id, m.sender_id, m.receiver_id, m.priority, m.content,
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, m.lease_id;
    END IF;
END $$;
CREATE FUNCTION kendall_queue.take_first(wanted_queue bigint, clients bigint[], leases_ms bigint[], people bigint) RETURNS TABLE(place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint, receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer, lease_id bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    wanted integer := array_length(clients, 1);
BEGIN
    PERFORM promote_due(100);
    IF people = (SELECT count(*) FROM client c
        WHERE c.id = ANY (clients) AND c.present
          AND EXISTS (SELECT FROM queue q WHERE q.id = wanted_queue)) THEN
        RETURN QUERY
        SELECT * FROM take_chosen(lock_for(wanted_queue, clients), clients, leases_ms);
    ELSE
        RETURN QUERY
        SELECT * FROM take_many(clients, array_fill(wanted_queue, ARRAY[wanted]),
            array_fill(NULL::bigint, ARRAY[wanted]), array_fill(false, ARRAY[wanted]), leases_ms);
    END IF;
END $$;
CREATE FUNCTION kendall_queue.take_many(clients bigint[], queues bigint[], senders bigint[], by_priority boolean[], leases_ms bigint[]) RETURNS TABLE(place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint, receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer, lease_id bigint)
    LANGUAGE plpgsql
    AS $$
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
            taken := taken || chosen[i];
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM take_chosen(chosen, clients, leases_ms);
    RETURN QUERY
    SELECT a.place, a.code, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer,
        NULL::text, NULL::bigint, NULL::integer, NULL::bigint
    FROM unnest(codes) WITH ORDINALITY AS a (code, place)
    WHERE a.code <> 0;
END $$;
CREATE FUNCTION kendall_queue.take_once(client bigint, queue bigint, sender bigint, by_priority boolean, request uuid) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    before jsonb;
    now_taken jsonb;
    code integer := client_code(client);
BEGIN
    IF code <> 0 THEN
        RETURN jsonb_build_object('code', code);
    END IF;
    INSERT INTO answered (client_id, request_id) VALUES (client, request) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT a.answer INTO before FROM answered a
        WHERE a.client_id = client AND a.request_id = request;
        RETURN coalesce(before, jsonb_build_object('code', 7));
    END IF;
    SELECT to_jsonb(t) INTO now_taken
    FROM take_many(ARRAY[client], ARRAY[queue], ARRAY[sender], ARRAY[by_priority], ARRAY[0::bigint]) AS t;
    now_taken := coalesce(now_taken, jsonb_build_object('code', 7));
    IF (now_taken ->> 'code')::integer = 0 THEN
        UPDATE answered SET answer = now_taken WHERE client_id = client AND request_id = request;
    ELSE
        DELETE FROM answered WHERE client_id = client AND request_id = request;
    END IF;
    RETURN now_taken;
END $$;
CREATE FUNCTION kendall_queue.tell_waiters(queues bigint[], senders bigint[], receivers bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM waiter w WHERE w.queue_id = ANY (queues)) THEN
        -- As many as there are messages: each wakes one client.
        PERFORM pg_notify('kendall_queue', concat_ws(',',
            m.queue, coalesce(m.sender, 0), coalesce(m.receiver, 0), m.place))
        FROM unnest(queues, senders, receivers) WITH ORDINALITY
            AS m (queue, sender, receiver, place)
        WHERE m.queue IN (SELECT w.queue_id FROM waiter w);
    END IF;
END $$;
CREATE TABLE kendall_queue.answered (
    client_id bigint NOT NULL,
    request_id uuid NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    message_id bigint,
    answer jsonb
);
CREATE TABLE kendall_queue.client (
    id bigint NOT NULL,
    name text NOT NULL,
    present boolean DEFAULT true NOT NULL,
    hello_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT client_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200)))
);
ALTER TABLE kendall_queue.client ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME kendall_queue.client_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE kendall_queue.lease_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE kendall_queue.limits (
    single_row boolean DEFAULT true NOT NULL,
    content_characters integer NOT NULL,
    queues integer NOT NULL,
    CONSTRAINT limits_content_characters_check CHECK (((content_characters >= 1) AND (content_characters <= 1048576))),
    CONSTRAINT limits_queues_check CHECK ((queues > 0)),
    CONSTRAINT limits_single_row_check CHECK (single_row)
);
ALTER TABLE kendall_queue.message ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME kendall_queue.message_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE kendall_queue.queue (
    id bigint NOT NULL,
    name text NOT NULL,
    max_deliveries integer,
    dead_letter_queue_id bigint,
    retention interval,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT queue_check CHECK ((dead_letter_queue_id <> id)),
    CONSTRAINT queue_max_deliveries_check CHECK ((max_deliveries > 0)),
    CONSTRAINT queue_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200))),
    CONSTRAINT queue_retention_check CHECK ((retention > '00:00:00'::interval))
);
ALTER TABLE kendall_queue.queue ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME kendall_queue.queue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE kendall_queue.schema_history (
    version integer NOT NULL,
    name character varying(255),
    applied_on character varying(255),
    checksum character varying(255)
);
CREATE UNLOGGED TABLE kendall_queue.waiter (
    middleware uuid NOT NULL,
    queue_id bigint NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
INSERT INTO kendall_queue.answered VALUES
	(1, '01010101-0101-0101-0101-010101010101', '2200-01-01 00:00:00+00', 42, NULL);
INSERT INTO kendall_queue.client OVERRIDING SYSTEM VALUE VALUES
	(1, 'sender', true, '2026-11-22 04:50:05.224145+00'),
	(2, 'worker', true, '2026-11-22 04:50:05.224725+00'),
	(3, 'addressee', true, '2026-11-22 04:50:05.224782+00');
INSERT INTO kendall_queue.limits VALUES
	(true, 2000, 10000);
INSERT INTO kendall_queue.message OVERRIDING SYSTEM VALUE VALUES
	(2, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.230295+00', NULL, NULL, NULL, 'addressed 1'),
	(4, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.231629+00', NULL, NULL, NULL, 'addressed 2'),
	(5, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.232006+00', NULL, NULL, NULL, 'anyone 3'),
	(6, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.232048+00', NULL, NULL, NULL, 'addressed 3'),
	(7, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.232443+00', NULL, NULL, NULL, 'anyone 4'),
	(8, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.232489+00', NULL, NULL, NULL, 'addressed 4'),
	(9, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.232837+00', NULL, NULL, NULL, 'anyone 5'),
	(10, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.23288+00', NULL, NULL, NULL, 'addressed 5'),
	(11, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.233159+00', NULL, NULL, NULL, 'anyone 6'),
	(12, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.233208+00', NULL, NULL, NULL, 'addressed 6'),
	(13, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.233418+00', NULL, NULL, NULL, 'anyone 7'),
	(14, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.233465+00', NULL, NULL, NULL, 'addressed 7'),
	(15, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.233587+00', NULL, NULL, NULL, 'anyone 8'),
	(16, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.233629+00', NULL, NULL, NULL, 'addressed 8'),
	(17, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.23382+00', NULL, NULL, NULL, 'anyone 9'),
	(18, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.233866+00', NULL, NULL, NULL, 'addressed 9'),
	(19, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.233972+00', NULL, NULL, NULL, 'anyone 10'),
	(20, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.23402+00', NULL, NULL, NULL, 'addressed 10'),
	(21, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.234227+00', NULL, NULL, NULL, 'anyone 11'),
	(22, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234273+00', NULL, NULL, NULL, 'addressed 11'),
	(23, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.234352+00', NULL, NULL, NULL, 'anyone 12'),
	(24, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234377+00', NULL, NULL, NULL, 'addressed 12'),
	(25, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.234433+00', NULL, NULL, NULL, 'anyone 13'),
	(26, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234455+00', NULL, NULL, NULL, 'addressed 13'),
	(27, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.234534+00', NULL, NULL, NULL, 'anyone 14'),
	(28, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234581+00', NULL, NULL, NULL, 'addressed 14'),
	(29, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.234682+00', NULL, NULL, NULL, 'anyone 15'),
	(30, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234724+00', NULL, NULL, NULL, 'addressed 15'),
	(31, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.234826+00', NULL, NULL, NULL, 'anyone 16'),
	(32, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.234865+00', NULL, NULL, NULL, 'addressed 16'),
	(33, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.23504+00', NULL, NULL, NULL, 'anyone 17'),
	(34, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.235092+00', NULL, NULL, NULL, 'addressed 17'),
	(35, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.235191+00', NULL, NULL, NULL, 'anyone 18'),
	(36, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.235236+00', NULL, NULL, NULL, 'addressed 18'),
	(37, 1, 1, NULL, 1, 0, '2026-11-22 04:50:05.235338+00', NULL, NULL, NULL, 'anyone 19'),
	(38, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.235372+00', NULL, NULL, NULL, 'addressed 19'),
	(39, 1, 1, NULL, 2, 0, '2026-11-22 04:50:05.235476+00', NULL, NULL, NULL, 'anyone 20'),
	(40, 1, 1, 3, 0, 0, '2026-11-22 04:50:05.235518+00', NULL, NULL, NULL, 'addressed 20'),
	(41, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.236015+00', '2200-01-01 00:00:00+00', NULL, NULL, 'delayed'),
	(1, 1, 1, NULL, 1, 1, '2026-11-22 04:50:05.229289+00', '2200-01-01 00:00:00+00', 2, 1, 'anyone 1'),
	(3, 1, 1, NULL, 2, 1, '2026-11-22 04:50:05.231542+00', '2026-11-22 04:50:05.243984+00', 2, 2, 'anyone 2'),
	(42, 1, 1, NULL, 0, 0, '2026-11-22 04:50:05.24469+00', NULL, NULL, NULL, 'once');
INSERT INTO kendall_queue.queue OVERRIDING SYSTEM VALUE VALUES
	(1, 'jobs', 5, NULL, NULL, '2026-11-22 04:50:05.226746+00');
INSERT INTO kendall_queue.schema_history VALUES
	(1, 'schema', '2026-01-01T00:00:00Z', '10909211159414095886'),
	(2, 'operations', '2026-01-01T00:00:00Z', '15885023545007483032');
SELECT pg_catalog.setval('kendall_queue.client_id_seq', 3, true);
SELECT pg_catalog.setval('kendall_queue.lease_id', 2, true);
SELECT pg_catalog.setval('kendall_queue.message_id_seq', 42, true);
SELECT pg_catalog.setval('kendall_queue.queue_id_seq', 1, true);
ALTER TABLE ONLY kendall_queue.answered
    ADD CONSTRAINT answered_pkey PRIMARY KEY (client_id, request_id);
ALTER TABLE ONLY kendall_queue.client
    ADD CONSTRAINT client_name_key UNIQUE (name);
ALTER TABLE ONLY kendall_queue.client
    ADD CONSTRAINT client_pkey PRIMARY KEY (id);
ALTER TABLE ONLY kendall_queue.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (single_row);
ALTER TABLE ONLY kendall_queue.message
    ADD CONSTRAINT message_pkey PRIMARY KEY (id);
ALTER TABLE ONLY kendall_queue.queue
    ADD CONSTRAINT queue_name_key UNIQUE (name);
ALTER TABLE ONLY kendall_queue.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (id);
ALTER TABLE ONLY kendall_queue.schema_history
    ADD CONSTRAINT schema_history_pkey PRIMARY KEY (version);
ALTER TABLE ONLY kendall_queue.waiter
    ADD CONSTRAINT waiter_pkey PRIMARY KEY (queue_id, middleware);
CREATE INDEX answered_by_age ON kendall_queue.answered USING btree (at);
CREATE INDEX client_absent ON kendall_queue.client USING btree (id) WHERE (NOT present);
CREATE INDEX message_by_due ON kendall_queue.message USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX message_by_sender ON kendall_queue.message USING btree (queue_id, sender_id, receiver_id, ((id + 0))) WHERE (due_at IS NULL);
CREATE INDEX message_by_sender_and_priority ON kendall_queue.message USING btree (queue_id, sender_id, receiver_id, priority DESC, ((id + 0))) WHERE ((due_at IS NULL) AND (priority > 0));
CREATE INDEX message_for_anyone ON kendall_queue.message USING btree (queue_id, ((id + 0))) WHERE ((due_at IS NULL) AND (receiver_id IS NULL));
CREATE INDEX message_for_anyone_by_priority ON kendall_queue.message USING btree (queue_id, priority DESC, ((id + 0))) WHERE ((due_at IS NULL) AND (receiver_id IS NULL) AND (priority > 0));
CREATE INDEX message_for_one ON kendall_queue.message USING btree (receiver_id, queue_id, ((id + 0))) WHERE ((due_at IS NULL) AND (receiver_id IS NOT NULL));
CREATE INDEX message_for_one_by_priority ON kendall_queue.message USING btree (receiver_id, queue_id, priority DESC, ((id + 0))) WHERE ((due_at IS NULL) AND (receiver_id IS NOT NULL) AND (priority > 0));
ALTER TABLE ONLY kendall_queue.answered
    ADD CONSTRAINT answered_client_id_fkey FOREIGN KEY (client_id) REFERENCES kendall_queue.client(id);
ALTER TABLE ONLY kendall_queue.message
    ADD CONSTRAINT message_leased_by_fkey FOREIGN KEY (leased_by) REFERENCES kendall_queue.client(id);
ALTER TABLE ONLY kendall_queue.message
    ADD CONSTRAINT message_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES kendall_queue.queue(id) ON DELETE CASCADE;
ALTER TABLE ONLY kendall_queue.message
    ADD CONSTRAINT message_receiver_id_fkey FOREIGN KEY (receiver_id) REFERENCES kendall_queue.client(id);
ALTER TABLE ONLY kendall_queue.message
    ADD CONSTRAINT message_sender_id_fkey FOREIGN KEY (sender_id) REFERENCES kendall_queue.client(id);
ALTER TABLE ONLY kendall_queue.queue
    ADD CONSTRAINT queue_dead_letter_queue_id_fkey FOREIGN KEY (dead_letter_queue_id) REFERENCES kendall_queue.queue(id) ON DELETE SET NULL;
