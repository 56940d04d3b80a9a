-- What keeps house, lists, counts, purges and deletes, at a cost that does not grow with the messages
-- that wait.
--
-- Every look at messages names an order, which only the right index has: the planner knows neither the
-- queue nor how many messages it holds, and would as soon walk over all messages to the first that fits.

-- Hidden messages by queue, to count them; messages that only wait are in neither. Two, since an index of
-- all that have a `due_at` would also do, in the planner's eyes, to look for those that are due.
CREATE INDEX message_leased ON message (queue_id, leased_by) WHERE leased_by IS NOT NULL;
CREATE INDEX message_delayed ON message (queue_id, sender_id)
    WHERE due_at IS NOT NULL AND leased_by IS NULL;

-- Answers are inserted and dropped at the rate of the requests that carry an id.
ALTER TABLE answered SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- How far the look for addressed messages that are too old has come: one row. Unlogged: after a crash
-- it begins again.
CREATE UNLOGGED TABLE retention_walk (
    single_row  boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    receiver_id bigint NOT NULL,
    queue_id    bigint NOT NULL
);

-- Drops those of these messages that still wait and are too old.
CREATE FUNCTION drop_older(ids bigint[], before timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    dropped bigint;
BEGIN
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message m
        WHERE m.id = ANY (ids) AND m.due_at IS NULL AND m.sent_at < before
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

-- Housekeeping, in small steps: what is due, what is too old, what nobody will ask again. Whoever gets
-- `at_most` or more calls again.
CREATE OR REPLACE FUNCTION keep_house(at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    done bigint := promote_due(at_most);
    now_at timestamptz := clock_timestamp();
    step bigint;
BEGIN
    -- One middleware at a time; the number only has to be one that nobody else takes.
    IF NOT pg_try_advisory_xact_lock(7738712912116345960) THEN
        RETURN done;
    END IF;
    done := done + drop_expired(at_most);
    DELETE FROM answered WHERE ctid = ANY (ARRAY(
        SELECT a.ctid FROM answered a WHERE a.at < now_at - interval '10 min'
        ORDER BY a.at LIMIT at_most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS step = ROW_COUNT;
    DELETE FROM waiter WHERE seen_at < now_at - interval '1 min';
    RETURN done + step;
END $$;

-- Whether a message for anyone waits that somebody else than this client has sent: a look at each
-- sender, and not at each of the client's own messages.
CREATE FUNCTION waits_of_others(wanted_queue bigint, client bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    other bigint := 0;
BEGIN
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

-- The queues where a message waits that this client may take.
CREATE OR REPLACE FUNCTION queues_for(wanted bigint, every boolean, after bigint, at_most integer)
RETURNS TABLE (id bigint, name text) LANGUAGE sql STABLE AS $$
    SELECT q.id, q.name FROM queue q
    WHERE q.id > after
      AND CASE
        WHEN every THEN true
        WHEN EXISTS (SELECT FROM message m
            WHERE m.queue_id = q.id AND m.receiver_id = wanted AND m.due_at IS NULL) THEN true
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

-- Counts stop at `at_most`.
CREATE OR REPLACE FUNCTION queue_statistics(wanted bigint, at_most bigint)
RETURNS TABLE (
    name text, waiting bigint, leased bigint, delayed bigint, oldest_age_ms bigint,
    max_deliveries integer, dead_letter_queue_id bigint, retention_ms bigint
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
        (extract(epoch FROM q.retention) * 1000)::bigint
    FROM queue q WHERE q.id = wanted
$$;

-- Drops at most `at_most` of the messages that wait; the caller repeats until none is left.
CREATE OR REPLACE FUNCTION purge_some(wanted bigint, at_most integer) RETURNS bigint
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
    DELETE FROM queue WHERE id = wanted;
    RETURN 0;
END $$;
