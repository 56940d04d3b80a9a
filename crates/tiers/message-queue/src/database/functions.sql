-- What operations do: the functions that are in force, all of them.
--
-- They live in a schema of their own, which is named by a hash of this file and created by the first middleware
-- that misses it: two builds with the same tables (`tables.sql`) work side by side, each with its own functions.
-- Connections have both schemas in their search path, this one first.
--
-- Each operation takes one round trip. The batch forms take arrays, one element an operation, and answer one
-- row an operation with a code: an operation that fails does not disturb the others.
--
-- Codes (the middleware maps them to gRPC status codes):
--   0 done · 1 unknown client · 2 client said goodbye · 3 unknown queue · 4 unknown receiver
--   5 to oneself · 6 content too long · 7 nothing there · 8 lease not held · 9 queue holds messages
--   10 name taken · 11 too many queues · 12 unknown sender · 13 unknown dead-letter queue
--   14 unknown message · 15 a request id that stands for something else · 16 dead letters to itself
--   17 no space for an answer that is kept
--
-- PostgreSQL shall have one way to perform each: its planner knows the table as it was when it looked last,
-- and of a queue that was empty then it believes that to walk along any index is as good as to look
-- something up. So messages are looked up by id one by one or as an array, never by a join; what else a
-- message looked up by id must be is written (`coalesce`) so that no other index answers to it; and every
-- look at messages names an order, which only the right index has (`id + 0` is the id, in an order that
-- only those indexes have).

-- A message that was taken, or why none was.
CREATE TYPE taken AS (
    place bigint, code integer, message_id bigint, queue_id bigint, sender_id bigint,
    receiver_id bigint, priority integer, content text, sent_at_us bigint, deliveries integer,
    lease_id bigint, body bytea, extra text
);

-- What few messages have, as JSON: headers, and of a dead letter what it was. NULL where there is nothing.
CREATE FUNCTION extra_of(m message) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN m.headers IS NULL AND m.dead_at IS NULL THEN NULL
        ELSE jsonb_strip_nulls(jsonb_build_object(
            'headers', m.headers, 'origin_queue_id', m.origin_queue_id,
            'origin_receiver_id', m.origin_receiver_id, 'reason', m.dead_reason,
            'deliveries', m.dead_deliveries,
            'dead_at_us', (extract(epoch FROM m.dead_at) * 1000000)::bigint))::text END
$$;

CREATE FUNCTION hello(wanted text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO client (name) VALUES (wanted)
    ON CONFLICT (name) DO UPDATE SET present = true, hello_at = clock_timestamp()
    RETURNING id
$$;

-- The same, for those who do not wait for long until somebody ends who registers this name in a transaction of
-- their own.
CREATE FUNCTION hello_soon(wanted text) RETURNS bigint LANGUAGE sql SET lock_timeout = '1s' AS $$
    SELECT hello(wanted)
$$;

CREATE FUNCTION client_code(wanted bigint) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT CASE WHEN present THEN 0 ELSE 2 END FROM client WHERE id = wanted), 1)
$$;

-- Begins a request that may be repeated. Code NULL: it is new, and its answer is to be kept with it. Code 0:
-- it was answered, by `before`. Code 15: its id stands for another operation, queue or content. Whoever comes
-- second waits for the commit of the first.
CREATE FUNCTION begin_request(
    client bigint, request uuid, its_operation smallint, queue bigint, its_digest uuid,
    OUT code integer, OUT before jsonb
) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        INSERT INTO answered (client_id, request_id, operation, queue_id, digest)
        VALUES (client, request, its_operation, queue, its_digest) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT CASE
                WHEN (a.operation, a.queue_id, a.digest)
                    IS NOT DISTINCT FROM (its_operation, queue, its_digest) THEN 0
                ELSE 15 END,
            a.answer
        INTO code, before
        FROM answered a WHERE a.client_id = client AND a.request_id = request;
        IF FOUND THEN
            RETURN;
        END IF;
        -- It was dropped between the two looks.
    END LOOP;
END $$;

CREATE FUNCTION goodbye(wanted bigint) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    UPDATE client SET present = false WHERE id = wanted AND present;
    IF FOUND THEN
        RETURN 0;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM client WHERE id = wanted) THEN 2 ELSE 1 END;
END $$;

CREATE FUNCTION create_queue(
    wanted text, deliveries integer, dead_letter bigint, keep_ms bigint, archive_ms bigint,
    OUT code integer, OUT queue_id bigint
) LANGUAGE plpgsql AS $$
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
    INSERT INTO queue (name, max_deliveries, dead_letter_queue_id, retention, archive_for)
    VALUES (wanted, deliveries, dead_letter, keep_ms * interval '1 ms', archive_ms * interval '1 ms')
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO queue_id;
    IF queue_id IS NULL THEN
        code := 10;
    END IF;
END $$;

-- Changes what is not NULL; 0 means none. Whoever sends in a transaction of their own (`enqueue`) holds the queue
-- until its end, which may never come: that is not waited for, here and in `delete_queue`, since few who wait
-- would have all connections.
CREATE FUNCTION change_queue(
    wanted bigint, new_name text, new_deliveries integer, new_letters bigint, new_keep_ms bigint,
    new_archive_ms bigint, new_paused boolean
) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    was record;
BEGIN
    SELECT q.name, q.paused INTO was FROM queue q WHERE q.id = wanted FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 3;
    END IF;
    IF new_letters = wanted THEN
        RETURN 16;
    END IF;
    IF new_letters > 0 AND NOT EXISTS (SELECT FROM queue q WHERE q.id = new_letters) THEN
        RETURN 13;
    END IF;
    IF new_name IS DISTINCT FROM was.name
        AND EXISTS (SELECT FROM queue q WHERE q.name = new_name) THEN
        RETURN 10;
    END IF;
    UPDATE queue q SET
        name = coalesce(new_name, q.name),
        max_deliveries = CASE WHEN new_deliveries IS NULL THEN q.max_deliveries
            ELSE nullif(new_deliveries, 0) END,
        dead_letter_queue_id = CASE WHEN new_letters IS NULL THEN q.dead_letter_queue_id
            ELSE nullif(new_letters, 0) END,
        retention = CASE WHEN new_keep_ms IS NULL THEN q.retention
            ELSE nullif(new_keep_ms, 0) * interval '1 ms' END,
        archive_for = CASE WHEN new_archive_ms IS NULL THEN q.archive_for
            ELSE nullif(new_archive_ms, 0) * interval '1 ms' END,
        paused = coalesce(new_paused, q.paused)
    WHERE q.id = wanted;
    IF new_archive_ms = 0 THEN
        DELETE FROM archive a WHERE a.queue_id = wanted;
    END IF;
    IF was.paused AND NOT new_paused THEN
        -- Each wakes one client; who is not woken looks again by itself.
        PERFORM tell_waiters(array_fill(wanted, ARRAY[100]), '{}', '{}');
    END IF;
    RETURN 0;
EXCEPTION WHEN unique_violation THEN
    -- Somebody took the name meanwhile.
    RETURN 10;
END $$;

CREATE FUNCTION delete_queue(wanted bigint, with_messages boolean) RETURNS integer
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
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
    DELETE FROM archive WHERE queue_id = wanted;
    DELETE FROM queue WHERE id = wanted;
    RETURN 0;
END $$;

-- The queues where a message waits that this client may take.
CREATE FUNCTION queues_for(wanted bigint, every boolean, after bigint, at_most integer)
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
                WHEN bool_or(h.sender_id <> wanted OR h.dead_at IS NOT NULL) THEN true
                WHEN count(*) < 32 THEN false
                ELSE waits_of_others(q.id, wanted) END
            FROM (
                SELECT m.sender_id, m.dead_at FROM message m
                WHERE m.queue_id = q.id AND m.receiver_id IS NULL AND m.due_at IS NULL
                ORDER BY m.id + 0 LIMIT 32
            ) AS h)
        END
    ORDER BY q.id
    LIMIT at_most
$$;

-- Counts stop at `at_most`.
CREATE FUNCTION queue_statistics(wanted bigint, at_most bigint)
RETURNS TABLE (
    name text, waiting bigint, leased bigint, delayed bigint, oldest_age_ms bigint,
    max_deliveries integer, dead_letter_queue_id bigint, retention_ms bigint, paused boolean,
    archive_ms bigint
) LANGUAGE sql STABLE AS $$
    SELECT q.name,
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.queue_id = q.id AND m.due_at IS NULL
            ORDER BY m.sender_id LIMIT at_most) AS few),
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.queue_id = q.id AND m.leased_by IS NOT NULL
            ORDER BY m.leased_by LIMIT at_most) AS few),
        (SELECT count(*) FROM (SELECT FROM message m
            WHERE m.queue_id = q.id AND m.due_at IS NOT NULL AND m.leased_by IS NULL
            ORDER BY m.sender_id LIMIT at_most) AS few),
        coalesce((extract(epoch FROM
            clock_timestamp() - oldest_sent_at(q.id, least(at_most / 100, 1000))) * 1000)::bigint, 0),
        q.max_deliveries, q.dead_letter_queue_id,
        (extract(epoch FROM q.retention) * 1000)::bigint, q.paused,
        (extract(epoch FROM q.archive_for) * 1000)::bigint
    FROM queue q WHERE q.id = wanted
$$;

-- Drops at most `at_most` of the messages that wait; the caller repeats until none is left.
CREATE FUNCTION purge_some(wanted bigint, at_most integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    dropped bigint;
BEGIN
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m WHERE m.queue_id = wanted AND m.due_at IS NULL
        ORDER BY m.sender_id LIMIT at_most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

-- Tells the middlewares whose clients wait for these queues: which queue, whose message, for whom
-- (0: unknown, anyone). Looks first, since a notification takes a lock that all of the database
-- shares until the commit.
CREATE FUNCTION tell_waiters(queues bigint[], senders bigint[], receivers bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
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

-- Makes a message a dead letter, or drops it where its queue has no place for them. The queue that it goes
-- to; NULL where it was dropped.
CREATE FUNCTION bury(wanted bigint, letters bigint, why text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF letters IS NOT NULL THEN
        -- Held until the commit, so that nobody deletes it meanwhile.
        PERFORM FROM queue q WHERE q.id = letters FOR KEY SHARE;
    END IF;
    IF letters IS NULL OR NOT FOUND THEN
        DELETE FROM message WHERE id = wanted;
        RETURN NULL;
    END IF;
    UPDATE message m SET due_at = NULL, leased_by = NULL, lease_id = NULL, deliveries = 0,
        queue_id = letters, receiver_id = NULL,
        -- One that dies again keeps where it was first.
        origin_queue_id = coalesce(m.origin_queue_id, m.queue_id),
        origin_receiver_id = coalesce(m.origin_receiver_id, m.receiver_id),
        dead_reason = why, dead_deliveries = m.deliveries, dead_at = clock_timestamp()
    WHERE m.id = wanted;
    RETURN letters;
END $$;

-- Makes ready what is due: delayed messages, and leased ones whose lease ran out. What was
-- delivered too often goes to the dead-letter queue, or away where there is none.
CREATE FUNCTION promote_due(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
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
        IF due.dead THEN
            due.letters := bury(due.id, due.letters, 'its lease ran out');
            IF due.letters IS NOT NULL THEN
                told := told || due.letters;
                receivers := receivers || NULL::bigint;
            END IF;
        ELSE
            UPDATE message SET due_at = NULL, leased_by = NULL, lease_id = NULL WHERE id = due.id;
            told := told || due.queue_id;
            receivers := receivers || due.receiver_id;
        END IF;
    END LOOP;
    IF promoted > 0 THEN
        PERFORM tell_waiters(told, '{}', receivers);
    END IF;
    RETURN promoted;
END $$;

-- Ids of dead letters of a queue after an id, and the bytes of their contents (known without reading long ones);
-- of one sender, where that is not NULL.
CREATE FUNCTION dead_letter_sizes(of_queue bigint, sender bigint, after bigint, at_most integer)
RETURNS TABLE (id bigint, bytes bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF sender IS NULL THEN
        RETURN QUERY
        SELECT m.id, (octet_length(m.content) + coalesce(octet_length(m.body), 0))::bigint
        FROM message m
        WHERE m.queue_id = of_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
          AND m.id + 0 > after AND m.dead_at IS NOT NULL
        ORDER BY m.id + 0 LIMIT at_most;
    ELSE
        RETURN QUERY
        SELECT m.id, (octet_length(m.content) + coalesce(octet_length(m.body), 0))::bigint
        FROM message m
        WHERE m.queue_id = of_queue AND m.sender_id = sender AND m.receiver_id IS NULL
          AND m.due_at IS NULL AND m.id + 0 > after AND m.dead_at IS NOT NULL
        ORDER BY m.id + 0 LIMIT at_most;
    END IF;
END $$;

-- Dead letters of a queue after an id, by their ids; of one sender, where that is not NULL. No more than begin
-- within `most_bytes`: one, at least.
CREATE FUNCTION dead_letters(
    of_queue bigint, sender bigint, after bigint, at_most integer, most_bytes bigint
) RETURNS TABLE (
    message_id bigint, sender_id bigint, priority integer, content text, sent_at_us bigint,
    body bytea, extra text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    letter record;
    bytes bigint := 0;
BEGIN
    FOR letter IN
        SELECT s.id, s.bytes FROM dead_letter_sizes(of_queue, sender, after, at_most) AS s
        ORDER BY s.id
    LOOP
        RETURN QUERY
        SELECT m.id, m.sender_id, m.priority, m.content,
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.body, extra_of(m)
        FROM message m WHERE m.id = letter.id;
        bytes := bytes + letter.bytes;
        EXIT WHEN bytes >= most_bytes;
    END LOOP;
END $$;

-- What an archive holds after an id, in the same way.
CREATE FUNCTION archived(of_queue bigint, after bigint, at_most integer, most_bytes bigint)
RETURNS SETOF archive LANGUAGE plpgsql STABLE AS $$
DECLARE
    kept record;
    bytes bigint := 0;
BEGIN
    FOR kept IN
        SELECT a.message_id, octet_length(a.content) + coalesce(octet_length(a.body), 0) AS bytes
        FROM archive a WHERE a.queue_id = of_queue AND a.message_id > after
        ORDER BY a.message_id LIMIT at_most
    LOOP
        RETURN QUERY
        SELECT * FROM archive a WHERE a.queue_id = of_queue AND a.message_id = kept.message_id;
        bytes := bytes + kept.bytes;
        EXIT WHEN bytes >= most_bytes;
    END LOOP;
END $$;

-- Moves dead letters back where they died, or to `target`, as if they had never been leased: those of
-- `messages`, or the first ones after an id where that is NULL; `last` is the last of those, NULL where there
-- was none. What has no queue to go to any more stays, and what was for a client that is forgotten: nobody could
-- take it there.
CREATE FUNCTION redrive(
    of_queue bigint, messages bigint[], target bigint, after bigint, at_most integer,
    OUT moved bigint, OUT last bigint
) LANGUAGE plpgsql AS $$
DECLARE
    letter record;
    whereto bigint;
    told bigint[] := '{}';
    receivers bigint[] := '{}';
BEGIN
    moved := 0;
    IF messages IS NULL THEN
        messages := ARRAY(
            SELECT d.id FROM dead_letter_sizes(of_queue, NULL, after, at_most) AS d ORDER BY d.id);
        last := messages[cardinality(messages)];
    END IF;
    FOR letter IN
        SELECT m.id, m.origin_queue_id, m.origin_receiver_id FROM message m
        WHERE m.id = ANY (messages) AND coalesce(m.queue_id, 0) = of_queue
          AND coalesce(m.dead_at, '-infinity') > '-infinity'
          AND coalesce(m.due_at, '-infinity') = '-infinity'
        FOR UPDATE SKIP LOCKED
    LOOP
        whereto := coalesce(target, letter.origin_queue_id);
        PERFORM FROM queue q WHERE q.id = whereto FOR KEY SHARE;
        CONTINUE WHEN NOT FOUND;
        IF letter.origin_receiver_id IS NOT NULL THEN
            PERFORM FROM client c WHERE c.id = letter.origin_receiver_id FOR KEY SHARE;
            CONTINUE WHEN NOT FOUND;
        END IF;
        UPDATE message SET queue_id = whereto, receiver_id = letter.origin_receiver_id,
            deliveries = 0, origin_queue_id = NULL, origin_receiver_id = NULL, dead_reason = NULL,
            dead_deliveries = NULL, dead_at = NULL
        WHERE id = letter.id;
        moved := moved + 1;
        told := told || whereto;
        receivers := receivers || letter.origin_receiver_id;
    END LOOP;
    IF moved > 0 THEN
        PERFORM tell_waiters(told, '{}', receivers);
    END IF;
END $$;

-- Sends whatever may be sent: one code and one id a message, or no codes where all went well.
CREATE FUNCTION send_many(
    clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[], bodies bytea[], headers text[], requests uuid[], digests uuid[],
    OUT codes integer[], OUT ids bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    -- Nearly always nothing is wrong with any of them; where something is, each is looked at.
    IF requests IS NULL THEN
        BEGIN
            SELECT t.ids INTO ids FROM send_together(
                ARRAY(SELECT DISTINCT c.id FROM unnest(clients) AS c (id)),
                ARRAY(SELECT DISTINCT q.id FROM unnest(queues) AS q (id)),
                ARRAY(SELECT DISTINCT r.id FROM unnest(receivers) AS r (id) WHERE r.id IS NOT NULL),
                queues, clients, receivers, contents, priorities, delays_ms, bodies, headers) AS t;
        EXCEPTION WHEN integrity_constraint_violation THEN
            ids := NULL;
        END;
        IF ids IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    SELECT s.codes, s.ids INTO codes, ids FROM send_with_care(
        clients, queues, receivers, contents, priorities, delays_ms, bodies, headers, requests,
        digests) AS s;
    PERFORM tell_waiters(queues, clients, receivers);
END $$;

-- Looks at each message, and knows requests that are repeated.
CREATE FUNCTION send_with_care(
    clients bigint[], queues bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[], bodies bytea[], headers text[], requests uuid[], digests uuid[],
    OUT codes integer[], OUT ids bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    longest integer := (SELECT content_characters FROM limits);
    -- The ids that were drawn; for repeated requests `ids` is what the first one got.
    drawn bigint[];
BEGIN
    -- Held until the commit, so that nobody deletes or forgets them meanwhile.
    PERFORM FROM queue q WHERE q.id = ANY (queues) FOR KEY SHARE;
    PERFORM FROM client c WHERE c.id = ANY (receivers) FOR KEY SHARE;
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
                WHEN char_length(m.content) > longest OR octet_length(m.body) > 4 * longest THEN 6
                ELSE 0
            END AS code
        FROM unnest(clients, queues, receivers, contents, bodies)
            WITH ORDINALITY AS m (client, queue, receiver, content, body, place)
            LEFT JOIN client s ON s.id = m.client
            LEFT JOIN queue q ON q.id = m.queue
            LEFT JOIN client r ON r.id = m.receiver
        ORDER BY m.place
    ) AS a;

    ids := drawn;
    IF requests IS NOT NULL THEN
        -- Whoever inserts the row sends; the others wait for its commit and answer the same.
        INSERT INTO answered (client_id, request_id, message_id, operation, queue_id, digest)
        SELECT m.client, m.request, m.id, 0, m.queue, m.digest
        FROM unnest(clients, queues, requests, digests, drawn, codes)
            AS m (client, queue, request, digest, id, code)
        WHERE m.request IS NOT NULL AND m.code = 0
        ON CONFLICT DO NOTHING;
        -- What was sent once was sent, also where it could not be sent any more.
        SELECT array_agg(CASE WHEN w.client_id IS NULL THEN m.code WHEN w.fits THEN 0 ELSE 15 END
                ORDER BY m.place),
            array_agg(CASE WHEN w.client_id IS NULL THEN m.id WHEN w.fits THEN w.message_id END
                ORDER BY m.place)
        INTO codes, ids
        FROM unnest(clients, queues, requests, digests, drawn, codes)
            WITH ORDINALITY AS m (client, queue, request, digest, id, code, place)
            LEFT JOIN LATERAL (
                SELECT a.client_id, a.message_id, (a.operation, a.queue_id, a.digest)
                    IS NOT DISTINCT FROM (0::smallint, m.queue, m.digest) AS fits
                FROM answered a WHERE a.client_id = m.client AND a.request_id = m.request
            ) AS w ON true;
    END IF;

    INSERT INTO message (
        id, queue_id, sender_id, receiver_id, priority, sent_at, due_at, content, body, headers)
    OVERRIDING SYSTEM VALUE
    SELECT m.id, m.queue, m.client, m.receiver, m.priority, clock_timestamp(),
        CASE WHEN m.delay_ms > 0 THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
        m.content, m.body, m.headers::jsonb
    FROM unnest(clients, queues, receivers, contents, priorities, delays_ms, bodies, headers, drawn, ids)
        AS m (client, queue, receiver, content, priority, delay_ms, body, headers, drawn_id, id)
    WHERE m.id = m.drawn_id;
END $$;

-- The first message of one sender, locked, among those addressed to `receiver` or, where that is NULL, to
-- anyone. The order names the receiver, since an index with a NULL in it has no order otherwise.
CREATE FUNCTION lock_head_of(
    wanted_queue bigint, sender bigint, receiver bigint, by_priority boolean, taken bigint[],
    OUT id bigint, OUT priority integer
) LANGUAGE plpgsql AS $$
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

-- The first message that this client may have among those for itself (`for_me`) or for anyone;
-- locked, so that nobody else takes it. `taken` are messages that this transaction took already.
CREATE FUNCTION lock_head(
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
            SELECT m.id, m.sender_id, m.dead_at FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
              AND m.priority > 0 AND m.id <> ALL (taken)
            ORDER BY m.priority DESC, m.id + 0 LIMIT 32
        LOOP
            seen := seen + 1;
            -- Dead letters come back to their senders, too.
            CONTINUE WHEN head.sender_id = client AND head.dead_at IS NULL;
            SELECT * INTO id, priority FROM lock_seen(head.id);
            IF id IS NOT NULL THEN
                RETURN;
            END IF;
        END LOOP;
    END IF;
    IF seen < 32 THEN
        seen := 0;
        FOR head IN
            SELECT m.id, m.sender_id, m.dead_at FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
              AND m.id <> ALL (taken)
            ORDER BY m.id + 0 LIMIT 32
        LOOP
            seen := seen + 1;
            -- Dead letters come back to their senders, too.
            CONTINUE WHEN head.sender_id = client AND head.dead_at IS NULL;
            SELECT * INTO id, priority FROM lock_seen(head.id);
            IF id IS NOT NULL THEN
                RETURN;
            END IF;
        END LOOP;
        IF seen < 32 THEN
            -- Those were all.
            RETURN;
        END IF;
    END IF;
    -- Many of the client's own messages stand in front: go from sender to sender instead, which
    -- costs a look at each sender and not at each message.
    SELECT m.id, m.priority INTO id, priority FROM message m
    WHERE m.queue_id = wanted_queue AND m.sender_id = client AND m.receiver_id IS NULL
      AND m.due_at IS NULL AND m.dead_at IS NOT NULL AND m.id <> ALL (taken)
    ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED;
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

-- One message for one client, locked; NULL when there is none.
CREATE FUNCTION lock_one(
    wanted_queue bigint, client bigint, sender bigint, by_priority boolean, taken bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    mine record;
    anyones record;
BEGIN
    IF sender = client THEN
        -- Its own messages are for others, but for those that died.
        RETURN (SELECT m.id FROM message m
            WHERE m.queue_id = wanted_queue AND m.sender_id = client AND m.receiver_id IS NULL
              AND m.due_at IS NULL AND m.dead_at IS NOT NULL AND m.id <> ALL (taken)
            ORDER BY m.id + 0 LIMIT 1 FOR UPDATE SKIP LOCKED);
    END IF;
    -- A few looks, as in `lock_for`, while anything waits in the queue.
    FOR look IN 1 .. 3 LOOP
        IF sender IS NULL THEN
            SELECT * INTO mine FROM lock_head(wanted_queue, client, true, by_priority, taken);
            SELECT * INTO anyones FROM lock_head(wanted_queue, client, false, by_priority, taken);
        ELSE
            SELECT * INTO mine FROM lock_head_of(wanted_queue, sender, client, by_priority, taken);
            SELECT * INTO anyones FROM lock_head_of(wanted_queue, sender, NULL, by_priority, taken);
        END IF;
        EXIT WHEN mine.id IS NOT NULL OR anyones.id IS NOT NULL OR (
            SELECT true FROM message m WHERE m.queue_id = wanted_queue AND m.due_at IS NULL
            ORDER BY m.sender_id LIMIT 1) IS NULL;
    END LOOP;
    IF mine.id IS NULL OR anyones.id IS NULL THEN
        RETURN coalesce(mine.id, anyones.id);
    END IF;
    IF by_priority AND mine.priority <> anyones.priority THEN
        RETURN CASE WHEN mine.priority > anyones.priority THEN mine.id ELSE anyones.id END;
    END IF;
    RETURN least(mine.id, anyones.id);
END $$;

-- Chooses and locks a message for each of these clients, who all ask one queue for its first
-- message by arrival. NULL, or past the end, where there is none.
CREATE FUNCTION lock_for(wanted_queue bigint, clients bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    wanted integer := cardinality(clients);
    -- Unaddressed messages in front, as many as there are clients, and who sent them (0 of dead letters,
    -- which anyone may have). One that is given away gets the sender NULL; all before `front` are.
    ids bigint[];
    senders bigint[];
    available integer;
    front integer := 1;
    addressed bigint[];
    chosen bigint[] := array_fill(NULL::bigint, ARRAY[wanted]);
    at integer;
BEGIN
    -- While a look goes over the messages that it sees, others may take all of them and send more, which it does not see.
    -- So it looks again while one waits that it did not get, a few times: others may hold that one.
    FOR look IN 1 .. 5 LOOP
        SELECT array_agg(h.id), array_agg(CASE WHEN h.dead_at IS NULL THEN h.sender_id ELSE 0 END)
        INTO ids, senders
        FROM (
            SELECT m.id, m.sender_id, m.dead_at FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT wanted FOR UPDATE SKIP LOCKED
        ) AS h;
        EXIT WHEN cardinality(ids) = wanted OR (
            SELECT true FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
              AND m.id <> ALL (coalesce(ids, '{}'))
            ORDER BY m.id + 0 LIMIT 1) IS NULL;
    END LOOP;
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

-- Takes (lease_ms 0) or leases the messages that were chosen, one for each place, or none. Answers
-- those that there are.
CREATE FUNCTION take_chosen(chosen bigint[], clients bigint[], leases_ms bigint[])
RETURNS SETOF taken LANGUAGE plpgsql AS $$
BEGIN
    IF 0 = ANY (leases_ms) THEN
        RETURN QUERY
        WITH gone AS (
            DELETE FROM message m
            WHERE m.id = ANY (ARRAY(
                SELECT a.id FROM unnest(chosen, leases_ms) AS a (id, lease_ms) WHERE a.lease_ms = 0))
            RETURNING m AS was
        ), kept AS (
            INSERT INTO archive (queue_id, message_id, sender_id, receiver_id, taken_by, received,
                priority, deliveries, sent_at, content, body, headers)
            SELECT (g.was).queue_id, (g.was).id, (g.was).sender_id, (g.was).receiver_id,
                clients[array_position(chosen, (g.was).id)], true, (g.was).priority,
                (g.was).deliveries, (g.was).sent_at, (g.was).content, (g.was).body, (g.was).headers
            FROM gone g
            WHERE (SELECT q.archive_for FROM queue q WHERE q.id = (g.was).queue_id) IS NOT NULL
        )
        SELECT array_position(chosen, (g.was).id)::bigint, 0, (g.was).id, (g.was).queue_id,
            (g.was).sender_id, (g.was).receiver_id, (g.was).priority, (g.was).content,
            (extract(epoch FROM (g.was).sent_at) * 1000000)::bigint, (g.was).deliveries,
            NULL::bigint, (g.was).body, extra_of(g.was)
        FROM gone g;
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
            (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, m.lease_id, m.body,
            extra_of(m);
    END IF;
END $$;

-- Takes (lease_ms 0) or leases one message for each operation. Answers the messages that were found
-- and the operations that were refused; of the others there is nothing to say.
CREATE FUNCTION take_many(
    clients bigint[], queues bigint[], senders bigint[], by_priority boolean[], leases_ms bigint[]
) RETURNS SETOF taken LANGUAGE plpgsql AS $$
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
            WHEN q.paused THEN 7
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
        NULL::text, NULL::bigint, NULL::integer, NULL::bigint, NULL::bytea, NULL::text
    FROM unnest(codes) WITH ORDINALITY AS a (code, place)
    WHERE a.code <> 0;
END $$;

-- Takes or leases up to `at_most` messages for a request that may be repeated: the same request gets the
-- same messages. None is no answer that is kept. Where `is_full`, it takes nothing that is to be kept: as much
-- space as the messages have would be needed for it, before that of the messages is free.
CREATE FUNCTION take_once(
    client bigint, queue bigint, sender bigint, by_priority boolean, lease_ms bigint,
    at_most integer, operation smallint, request uuid, digest uuid, is_full boolean
) RETURNS SETOF taken LANGUAGE plpgsql AS $$
DECLARE
    begun record;
    now_taken taken[];
    code integer := client_code(client);
BEGIN
    IF code = 0 AND is_full AND NOT EXISTS (
        SELECT FROM answered a WHERE a.client_id = client AND a.request_id = request) THEN
        code := 17;
    END IF;
    IF code = 0 THEN
        SELECT * INTO begun FROM begin_request(client, request, operation, queue, digest);
        IF begun.code = 0 THEN
            RETURN QUERY SELECT * FROM jsonb_populate_recordset(NULL::taken, begun.before);
            RETURN;
        END IF;
        code := coalesce(begun.code, 0);
    END IF;
    IF code <> 0 THEN
        RETURN QUERY SELECT (jsonb_populate_record(NULL::taken,
            jsonb_build_object('place', 1, 'code', code))).*;
        RETURN;
    END IF;
    now_taken := ARRAY(SELECT t FROM take_many(
        array_fill(client, ARRAY[at_most]), array_fill(queue, ARRAY[at_most]),
        array_fill(sender, ARRAY[at_most]), array_fill(by_priority, ARRAY[at_most]),
        array_fill(lease_ms, ARRAY[at_most])) AS t);
    IF EXISTS (SELECT FROM unnest(now_taken) AS t WHERE t.code = 0) THEN
        UPDATE answered a SET answer = to_jsonb(now_taken)
        WHERE a.client_id = client AND a.request_id = request;
    ELSE
        DELETE FROM answered a WHERE a.client_id = client AND a.request_id = request;
    END IF;
    RETURN QUERY SELECT * FROM unnest(now_taken);
END $$;

-- The message that `take_many` would give, left where it is.
CREATE FUNCTION peek(wanted_queue bigint, client bigint, sender bigint, by_priority boolean)
RETURNS SETOF message LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
BEGIN
    -- The same choice as a receive makes; the locks are given up with this transaction.
    head := lock_one(wanted_queue, client, sender, by_priority, '{}');
    RETURN QUERY SELECT * FROM message WHERE id = head;
END $$;

CREATE FUNCTION acknowledge_many(clients bigint[], messages bigint[], leases bigint[])
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
        DELETE FROM message m WHERE m.ctid = ANY (ARRAY(SELECT h.at FROM held h))
        RETURNING m.*
    ), kept AS (
        INSERT INTO archive (queue_id, message_id, sender_id, receiver_id, taken_by, received,
            priority, deliveries, sent_at, content, body, headers)
        SELECT g.queue_id, g.id, g.sender_id, g.receiver_id, g.leased_by, false, g.priority,
            g.deliveries, g.sent_at, g.content, g.body, g.headers
        FROM gone g
        WHERE (SELECT q.archive_for FROM queue q WHERE q.id = g.queue_id) IS NOT NULL
    )
    -- The same acknowledgement twice in one batch: one of them did it.
    SELECT a.place, CASE
        WHEN a.place IN (SELECT min(h.place) FROM held h GROUP BY h.id) THEN 0 ELSE 8 END
    FROM unnest(messages) WITH ORDINALITY AS a (message, place)
    ORDER BY a.place
$$;

-- The same for a request that may be repeated: one code a message, as the first time.
CREATE FUNCTION acknowledge_once(
    client bigint, messages bigint[], leases bigint[], operation smallint, request uuid, digest uuid
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    begun record;
    codes integer[];
    code integer := client_code(client);
BEGIN
    IF code <> 1 THEN
        -- Queue 0: a batch may be of several.
        SELECT * INTO begun FROM begin_request(client, request, operation, 0, digest);
        IF begun.code = 0 THEN
            RETURN ARRAY(SELECT jsonb_array_elements_text(begun.before)::integer);
        END IF;
        code := coalesce(begun.code, 0);
    END IF;
    IF code <> 0 THEN
        RETURN array_fill(code, ARRAY[cardinality(messages)]);
    END IF;
    codes := ARRAY(SELECT a.code FROM acknowledge_many(
        array_fill(client, ARRAY[cardinality(messages)]), messages, leases) AS a ORDER BY a.place);
    IF 0 = ANY (codes) THEN
        UPDATE answered a SET answer = to_jsonb(codes)
        WHERE a.client_id = client AND a.request_id = request;
    ELSE
        DELETE FROM answered a WHERE a.client_id = client AND a.request_id = request;
    END IF;
    RETURN codes;
END $$;

CREATE FUNCTION extend_lease(client bigint, wanted bigint, lease bigint, lease_ms bigint)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    UPDATE message m SET due_at = clock_timestamp() + lease_ms * interval '1 ms'
    WHERE m.id = wanted AND coalesce(m.lease_id, 0) = lease AND coalesce(m.leased_by, 0) = client
      AND coalesce(m.due_at, '-infinity') > clock_timestamp();
    RETURN CASE WHEN FOUND THEN 0 ELSE 8 END;
END $$;

-- A message that was leased as often as its queue allows is a dead letter, also when it is given back.
CREATE FUNCTION return_message(
    client bigint, wanted bigint, lease bigint, delay_ms bigint, why text
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    held record;
    letters bigint;
BEGIN
    SELECT m.queue_id, m.receiver_id, m.deliveries INTO held FROM message m
    WHERE m.id = wanted AND coalesce(m.lease_id, 0) = lease AND coalesce(m.leased_by, 0) = client
      AND coalesce(m.due_at, '-infinity') > clock_timestamp()
    LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 8;
    END IF;
    SELECT q.dead_letter_queue_id INTO letters FROM queue q
    WHERE q.id = held.queue_id AND held.deliveries >= q.max_deliveries;
    IF FOUND THEN
        letters := bury(wanted, letters, 'it was returned' || coalesce(': ' || nullif(why, ''), ''));
        IF letters IS NOT NULL THEN
            PERFORM tell_waiters(ARRAY[letters], '{}', ARRAY[NULL::bigint]);
        END IF;
        RETURN 0;
    END IF;
    UPDATE message m SET leased_by = NULL, lease_id = NULL,
        due_at = CASE WHEN delay_ms > 0
            THEN clock_timestamp() + delay_ms * interval '1 ms' END
    WHERE m.id = wanted;
    PERFORM tell_waiters(ARRAY[held.queue_id], '{}', ARRAY[held.receiver_id]);
    RETURN 0;
END $$;

-- Drops what archives have kept long enough.
CREATE FUNCTION drop_archived(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    kept record;
    step bigint;
    done bigint := 0;
BEGIN
    FOR kept IN SELECT q.id, now_at - q.archive_for AS before FROM queue q
        WHERE q.archive_for IS NOT NULL ORDER BY q.id
    LOOP
        DELETE FROM archive WHERE ctid = ANY (ARRAY(
            SELECT a.ctid FROM archive a WHERE a.queue_id = kept.id AND a.done_at < kept.before
            ORDER BY a.done_at LIMIT at_most FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS step = ROW_COUNT;
        done := done + step;
    END LOOP;
    RETURN done;
END $$;

-- Writes down that clients were heard, for those that were not within the last day: what a client does
-- costs no write of its row.
CREATE FUNCTION heard_from(clients bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    -- A row that somebody else writes is heard of the next time; nobody is waited for.
    UPDATE client SET hello_at = clock_timestamp() WHERE id = ANY (ARRAY(
        SELECT c.id FROM client c
        WHERE c.id = ANY (clients) AND c.present AND c.hello_at < clock_timestamp() - interval '1 day'
        FOR NO KEY UPDATE SKIP LOCKED));
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Whether a client is one to forget: an hour after its last hello where it said goodbye, and otherwise when
-- nothing was heard of it for 30 days.
CREATE FUNCTION is_silent(c client) RETURNS boolean LANGUAGE sql AS $$
    SELECT c.hello_at < clock_timestamp() - CASE WHEN c.present THEN interval '30 days' ELSE interval '1 h' END
$$;

-- Forgets clients that are silent, that no message names, and whose request ids are all forgotten. At
-- most `at_most` at a time, of about fifty pages of clients that chance chooses, so that those that must stay keep no
-- others. No index is by whom a leased message came from, nor by whom a hidden one is for: where many are hidden,
-- nobody is forgotten.
--
-- A message that is being sent to one of them holds its row, which is then left; and who comes later finds
-- nobody. So none is stored for a client that is forgotten.
CREATE FUNCTION forget_clients(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    pages bigint := greatest(1, pg_relation_size('client'::regclass)
        / current_setting('block_size')::bigint);
    share real := least(100, 5000.0 / pages);
    -- Each of them is looked up in each queue.
    most bigint := greatest(1, least(at_most, 100000 / greatest(1, (SELECT count(*) FROM queue))));
    hidden_at_most integer := 10000;
    held bigint[];
    named bigint[] := '{}';
    leased bigint;
    delayed bigint;
    gone bigint;
    forgotten bigint := 0;
BEGIN
    held := ARRAY(SELECT c.id FROM client c TABLESAMPLE SYSTEM (share)
        WHERE is_silent(c) ORDER BY random() LIMIT most);
    held := ARRAY(SELECT c.id FROM client c WHERE c.id = ANY (held) AND is_silent(c)
        FOR UPDATE SKIP LOCKED);
    IF cardinality(held) = 0 THEN
        RETURN 0;
    END IF;
    -- From here on each statement sees what was committed before the rows were held.
    SELECT count(*), named || coalesce(array_agg(m.sender_id), '{}')
        || coalesce(array_agg(m.receiver_id), '{}') || coalesce(array_agg(m.leased_by), '{}')
    INTO leased, named FROM (
        SELECT l.sender_id, l.receiver_id, l.leased_by FROM message l
        WHERE l.leased_by IS NOT NULL
        ORDER BY l.queue_id, l.leased_by LIMIT hidden_at_most) AS m;
    SELECT count(*), named || coalesce(array_agg(m.sender_id), '{}')
        || coalesce(array_agg(m.receiver_id), '{}')
    INTO delayed, named FROM (
        SELECT d.sender_id, d.receiver_id FROM message d
        WHERE d.due_at IS NOT NULL AND d.leased_by IS NULL
        ORDER BY d.queue_id, d.sender_id LIMIT hidden_at_most) AS m;
    IF leased >= hidden_at_most OR delayed >= hidden_at_most THEN
        RETURN 0;
    END IF;
    FOREACH gone IN ARRAY held LOOP
        CONTINUE WHEN gone = ANY (named);
        CONTINUE WHEN (SELECT true FROM message m
            WHERE m.receiver_id = gone AND m.due_at IS NULL
            ORDER BY m.receiver_id, m.queue_id, m.id + 0 LIMIT 1);
        CONTINUE WHEN EXISTS (SELECT FROM queue q WHERE
            (SELECT true FROM message m
                WHERE m.queue_id = q.id AND m.sender_id = gone AND m.due_at IS NULL
                ORDER BY m.sender_id LIMIT 1));
        CONTINUE WHEN EXISTS (SELECT FROM answered a WHERE a.client_id = gone);
        DELETE FROM client WHERE id = gone;
        forgotten := forgotten + 1;
    END LOOP;
    RETURN forgotten;
END $$;

-- Housekeeping, in small steps: what is due, what is too old, what nobody will ask again. Whoever gets
-- `at_most` or more calls again.
CREATE FUNCTION keep_house(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    done bigint := promote_due(at_most);
    now_at timestamptz := clock_timestamp();
    step bigint;
BEGIN
    -- One middleware at a time; the number only has to be one that nobody else takes.
    IF NOT pg_try_advisory_xact_lock(7738712912116345960) THEN
        RETURN done;
    END IF;
    done := done + drop_expired(at_most) + drop_archived(at_most);
    DELETE FROM answered WHERE ctid = ANY (ARRAY(
        SELECT a.ctid FROM answered a WHERE a.at < now_at - interval '10 min'
        ORDER BY a.at LIMIT at_most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS step = ROW_COUNT;
    -- Longer than any middleware tries to put back.
    DELETE FROM put_back WHERE at < now_at - interval '30 days';
    DELETE FROM taking WHERE at < now_at - interval '30 days';
    DELETE FROM waiter WHERE seen_at < now_at - interval '1 min';
    RETURN done + step;
END $$;

-- Drops those of these messages that still wait and are too old.
CREATE FUNCTION drop_older(ids bigint[], before timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
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

-- Drops messages that waited longer than their queue keeps them. No index is by age: ids grow with
-- time, so that the oldest message of each line (those for anyone, those for one receiver) stands at its
-- head, and a line whose head is young enough is left. Where two sends at the same time drew
-- their ids in one order and their times in the other, a message is dropped a moment late.
--
-- Looks at the head of every queue that keeps messages for a time, and at those of a thousand lines of
-- one receiver; the next call goes on with the others.
CREATE FUNCTION drop_expired(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    -- A constant: `clock_timestamp()` would be asked for every row.
    now_at timestamptz := clock_timestamp();
    done bigint := 0;
    kept record;
    head record;
    came_from record;
    at_receiver bigint := 0;
    at_queue bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM queue q WHERE q.retention IS NOT NULL) THEN
        RETURN 0;
    END IF;
    FOR kept IN
        SELECT q.id, now_at - q.retention AS before FROM queue q
        WHERE q.retention IS NOT NULL
          AND now_at - q.retention > (
            SELECT m.sent_at FROM message m
            WHERE m.queue_id = q.id AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT 1)
    LOOP
        done := done + drop_older(ARRAY(
            SELECT m.id FROM message m
            WHERE m.queue_id = kept.id AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT at_most), kept.before);
    END LOOP;

    SELECT w.receiver_id, w.queue_id INTO came_from FROM retention_walk w;
    IF FOUND THEN
        at_receiver := came_from.receiver_id;
        at_queue := came_from.queue_id;
    END IF;
    FOR look IN 1 .. least(at_most, 1000) LOOP
        SELECT m.receiver_id, m.queue_id, m.sent_at,
            now_at - (SELECT q.retention FROM queue q WHERE q.id = m.queue_id) AS before
        INTO head
        FROM message m
        WHERE (m.receiver_id, m.queue_id) > (at_receiver, at_queue) AND m.due_at IS NULL
          AND m.receiver_id IS NOT NULL
        ORDER BY m.receiver_id, m.queue_id, m.id + 0 LIMIT 1;
        IF NOT FOUND THEN
            at_receiver := 0;
            at_queue := 0;
            EXIT;
        END IF;
        at_receiver := head.receiver_id;
        at_queue := head.queue_id;
        IF head.sent_at < head.before THEN
            done := done + drop_older(ARRAY(
                SELECT m.id FROM message m
                WHERE m.receiver_id = at_receiver AND m.queue_id = at_queue AND m.due_at IS NULL
                ORDER BY m.id + 0 LIMIT at_most), head.before);
        END IF;
    END LOOP;
    -- Nearly always it came round within one call, and there is nothing to remember.
    IF (at_receiver, at_queue)
        IS DISTINCT FROM (coalesce(came_from.receiver_id, 0), coalesce(came_from.queue_id, 0)) THEN
        INSERT INTO retention_walk (receiver_id, queue_id) VALUES (at_receiver, at_queue)
        ON CONFLICT (single_row) DO UPDATE SET receiver_id = at_receiver, queue_id = at_queue;
    END IF;
    RETURN done;
END $$;

-- Whether a message for anyone waits that somebody else than this client has sent, or a dead letter: a look at each
-- sender, and not at each of the client's own messages.
CREATE FUNCTION waits_of_others(wanted_queue bigint, client bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    other bigint := 0;
BEGIN
    PERFORM FROM message m
    WHERE m.queue_id = wanted_queue AND m.sender_id = client AND m.dead_at IS NOT NULL
      AND m.due_at IS NULL AND m.receiver_id IS NULL
    ORDER BY m.id + 0 LIMIT 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    LOOP
        SELECT m.sender_id INTO other FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id > other AND m.due_at IS NULL
        ORDER BY m.sender_id LIMIT 1;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        CONTINUE WHEN other = client;
        PERFORM FROM message m
        WHERE m.queue_id = wanted_queue AND m.sender_id = other AND m.receiver_id IS NULL
          AND m.due_at IS NULL
        ORDER BY m.receiver_id, m.id + 0 LIMIT 1;
        IF FOUND THEN
            RETURN true;
        END IF;
    END LOOP;
END $$;

-- When the oldest message was sent that waits in a queue: of those for anyone, and of those for one
-- receiver, of whom at most `at_most` are looked at.
CREATE FUNCTION oldest_sent_at(wanted bigint, at_most bigint) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    oldest timestamptz;
    receiver bigint := 0;
BEGIN
    SELECT m.sent_at INTO oldest FROM message m
    WHERE m.queue_id = wanted AND m.receiver_id IS NULL AND m.due_at IS NULL
    ORDER BY m.id + 0 LIMIT 1;
    FOR look IN 1 .. at_most LOOP
        SELECT m.receiver_id INTO receiver FROM message m
        WHERE m.receiver_id > receiver AND m.due_at IS NULL
        ORDER BY m.receiver_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        oldest := least(oldest, (SELECT m.sent_at FROM message m
            WHERE m.receiver_id = receiver AND m.queue_id = wanted AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT 1));
    END LOOP;
    RETURN oldest;
END $$;

-- Waiting, leased or delayed: each is in an index by queue, all together are in none.
CREATE FUNCTION holds_messages(wanted bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM FROM message WHERE queue_id = wanted AND due_at IS NULL ORDER BY sender_id LIMIT 1;
    IF NOT FOUND THEN
        PERFORM FROM message WHERE queue_id = wanted AND leased_by IS NOT NULL
        ORDER BY leased_by LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        PERFORM FROM message WHERE queue_id = wanted AND due_at IS NOT NULL AND leased_by IS NULL
        ORDER BY sender_id LIMIT 1;
    END IF;
    RETURN FOUND;
END $$;

-- Locks a message that was seen, if it is still ready and nobody else has locked it.
CREATE FUNCTION lock_seen(wanted bigint, OUT id bigint, OUT priority integer)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT m.id, m.priority INTO id, priority FROM message m
    WHERE m.id = wanted AND coalesce(m.due_at, '-infinity') = '-infinity'
    FOR UPDATE SKIP LOCKED;
END $$;

-- What a batch usually is, in one statement each: messages that are sent, and takers who all want the
-- first message by arrival of one queue. Each statement inside a function costs as much as several
-- rows, so the questions that concern all of them are asked at once.
--
-- `people` are the different clients of a batch. Both answer `done` = false, and have done nothing,
-- where one of them is not to succeed: `send_many` and `take_many` say which. A message to oneself is an
-- error of PostgreSQL.

-- `of_queues` are the different queues of a batch and `others` its different receivers; none of those
-- need be present. `receivers`, `priorities`, `delays_ms`, `bodies` and `headers` are NULL where no message has any.
CREATE FUNCTION send_together(
    people bigint[], of_queues bigint[], others bigint[],
    queues bigint[], senders bigint[], receivers bigint[], contents text[], priorities integer[],
    delays_ms bigint[], bodies bytea[], headers text[],
    OUT done boolean, OUT ids bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    waited_for boolean;
BEGIN
    SELECT (SELECT count(*) FROM client c WHERE c.id = ANY (people) AND c.present)
            = cardinality(people)
            -- Held until the commit, so that nobody forgets or deletes them meanwhile.
            AND (SELECT count(*) FROM (
                    SELECT FROM client c WHERE c.id = ANY (others) FOR KEY SHARE) AS held)
                = cardinality(others)
            AND (SELECT count(*) FROM (
                    SELECT FROM queue q WHERE q.id = ANY (of_queues) FOR KEY SHARE) AS held)
                = cardinality(of_queues)
            AND NOT EXISTS (SELECT FROM limits l, unnest(contents, bodies) AS c (content, body)
                -- No text has more characters than bytes, and those need not be counted.
                WHERE octet_length(c.content) > l.content_characters
                        AND char_length(c.content) > l.content_characters
                   OR octet_length(c.body) > 4 * l.content_characters)
    INTO done;
    IF NOT done THEN
        RETURN;
    END IF;
    WITH sent AS (
        INSERT INTO message (
            queue_id, sender_id, receiver_id, priority, sent_at, due_at, content, body, headers)
        SELECT m.queue, m.sender, m.receiver, coalesce(m.priority, 0), clock_timestamp(),
            CASE WHEN m.delay_ms > 0
                THEN clock_timestamp() + m.delay_ms * interval '1 ms' END,
            m.content, m.body, m.headers::jsonb
        FROM unnest(queues, senders, receivers, contents, priorities, delays_ms, bodies, headers)
            AS m (queue, sender, receiver, content, priority, delay_ms, body, headers)
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
    OUT sent_ats timestamptz[], OUT deliveries integer[], OUT lease_ids bigint[],
    OUT bodies bytea[], OUT extras text[], OUT marker text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- A constant, which an index can be asked for.
    now_at timestamptz := clock_timestamp();
    due boolean;
BEGIN
    SELECT (SELECT count(*) FROM client c WHERE c.id = ANY (people) AND c.present)
            = cardinality(people)
            AND EXISTS (SELECT FROM queue q
                WHERE q.id = wanted_queue AND NOT q.paused AND q.archive_for IS NULL),
        EXISTS (SELECT FROM message m WHERE m.due_at <= now_at)
    INTO done, due;
    IF NOT done THEN
        RETURN;
    END IF;
    IF due THEN
        PERFORM promote_due(100);
    END IF;
    IF leases_ms IS NULL THEN
        -- The messages in front, unless they are too few, one is of a taker, or one waits for a taker alone.
        WITH head AS MATERIALIZED (
            SELECT m.ctid AS at, m.sender_id, m.dead_at FROM message m
            WHERE m.queue_id = wanted_queue AND m.receiver_id IS NULL AND m.due_at IS NULL
            ORDER BY m.id + 0 LIMIT cardinality(takers) FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM message m
            WHERE m.ctid = ANY (ARRAY(SELECT h.at FROM head h
                WHERE (SELECT count(*) FROM head) = cardinality(takers)
                  AND NOT EXISTS (SELECT FROM head o
                    WHERE o.sender_id = ANY (takers) AND o.dead_at IS NULL)
                  -- One walk along the index for all of them, not a look at each.
                  AND (SELECT true FROM message o
                    WHERE o.receiver_id = ANY (people) AND o.queue_id = wanted_queue
                      AND o.due_at IS NULL
                    ORDER BY o.receiver_id, o.queue_id, o.id + 0 LIMIT 1) IS NULL))
            RETURNING m.id, m.sender_id, m.priority, m.content, m.sent_at, m.deliveries, m.body,
                extra_of(m) AS extra
        )
        SELECT array_agg(g.id), array_agg(g.sender_id), array_agg(g.priority),
            array_agg(g.content), array_agg(g.sent_at), array_agg(g.deliveries),
            CASE WHEN bool_or(g.body IS NOT NULL) THEN array_agg(g.body) END,
            CASE WHEN bool_or(g.extra IS NOT NULL) THEN array_agg(g.extra) END
        INTO ids, sender_ids, priorities, contents, sent_ats, deliveries, bodies, extras
        FROM gone g;
        IF ids IS NOT NULL THEN
            marker := mark_taking();
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(t.place), array_agg(t.message_id), array_agg(t.sender_id),
        array_agg(t.receiver_id), array_agg(t.priority), array_agg(t.content),
        array_agg(to_timestamp(0) + t.sent_at_us * interval '1 us'), array_agg(t.deliveries),
        array_agg(t.lease_id), array_agg(t.body), array_agg(t.extra)
    INTO places, ids, sender_ids, receiver_ids, priorities, contents, sent_ats, deliveries,
        lease_ids, bodies, extras
    FROM take_chosen(lock_for(wanted_queue, takers), takers,
        coalesce(leases_ms, array_fill(0::bigint, ARRAY[cardinality(takers)]))) AS t;
    IF ids IS NOT NULL AND (leases_ms IS NULL OR 0 = ANY (leases_ms)) THEN
        marker := mark_taking();
    END IF;
END $$;

-- Marks the transaction as one that takes messages; gives the marker, `TAKER NUMBER`. The middleware learns it before the
-- commit. Where it does not learn what became of the commit, only the marker tells (`was_taken`): the number of a transaction
-- that was open when PostgreSQL crashed is given to another one afterwards.
CREATE FUNCTION mark_taking() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    -- Drawn by each connection (`hold_functions`), and never used by another.
    me uuid := nullif(current_setting('kendall_queue.taker', true), '')::uuid;
    its_number bigint;
BEGIN
    -- A session that is no middleware's learns of its commit itself.
    IF me IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE taking t SET number = t.number + 1, at = now() WHERE t.taker = me
    RETURNING t.number INTO its_number;
    IF NOT FOUND THEN
        INSERT INTO taking (taker, number) VALUES (me, 1) RETURNING number INTO its_number;
    END IF;
    RETURN concat_ws(' ', me, its_number);
END $$;

-- Whether the transaction of a marker was committed. Waits for one that is open, but not for long.
CREATE FUNCTION was_taken(marker text) RETURNS boolean
LANGUAGE sql SET lock_timeout = '100ms' AS $$
    INSERT INTO taking AS t (taker, number) VALUES (split_part(marker, ' ', 1)::uuid, 0)
    ON CONFLICT (taker) DO UPDATE SET number = t.number
    RETURNING t.number >= split_part(marker, ' ', 2)::bigint
$$;

-- Puts back a message whose taker did not get it: where it was, as it was. To try again with the same `attempt` is
-- harmless. `marker` is that of the transaction that took it, where it is not known to be committed; otherwise NULL. 14
-- where its queue is gone.
CREATE FUNCTION put_back(
    its_attempt uuid, marker text, message bigint, of_queue bigint, sender bigint, receiver bigint,
    its_priority integer, its_content text, sent_at_us bigint, its_deliveries integer,
    its_body bytea, extra text
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    more jsonb := extra;
BEGIN
    IF marker IS NOT NULL AND NOT was_taken(marker) THEN
        -- It waits where it was.
        RETURN 0;
    END IF;
    INSERT INTO put_back (attempt) VALUES (its_attempt) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM FROM queue q WHERE q.id = of_queue FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 14;
    END IF;
    -- Not the limits of today: it was accepted once.
    INSERT INTO message (
        id, queue_id, sender_id, receiver_id, priority, content, sent_at, deliveries, body, headers,
        origin_queue_id, origin_receiver_id, dead_reason, dead_deliveries, dead_at)
    OVERRIDING SYSTEM VALUE
    VALUES (message, of_queue, sender, receiver, its_priority, its_content,
        to_timestamp(0) + sent_at_us * interval '1 us', its_deliveries, its_body, more -> 'headers',
        (more ->> 'origin_queue_id')::bigint, (more ->> 'origin_receiver_id')::bigint,
        more ->> 'reason', (more ->> 'deliveries')::integer,
        to_timestamp(0) + (more ->> 'dead_at_us')::bigint * interval '1 us');
    DELETE FROM archive a WHERE a.queue_id = of_queue AND a.message_id = message;
    PERFORM tell_waiters(ARRAY[of_queue], ARRAY[sender], ARRAY[receiver]);
    RETURN 0;
END $$;

-- Takes that room, a megabyte, where it was given back. All or nothing: a disk that is still full keeps what
-- it has.
CREATE FUNCTION fill_reserve() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reserve)
        -- One middleware at a time; the number only has to be one that nobody else takes.
        OR NOT pg_try_advisory_xact_lock(7738712912116345961) THEN
        RETURN;
    END IF;
    TRUNCATE reserve;
    INSERT INTO reserve SELECT '' FROM generate_series(1, 1024);
END $$;
