-- What other programs may call, in transactions of their own: `GRANT USAGE ON SCHEMA kendall_queue` is all that
-- they need. It is made anew by each start of a middleware, over the functions of its version.
--
-- Sends a message that is there when the caller's transaction commits, and never was where it is rolled back. Its
-- id is the answer; what cannot be sent is an exception. `sender` and `receiver` are names of clients; one
-- that is new is made known. The queue cannot be changed or deleted until the transaction ends.
CREATE OR REPLACE FUNCTION kendall_queue.enqueue(
    queue text, content text, sender text DEFAULT 'sql', receiver text DEFAULT NULL,
    priority integer DEFAULT 0, delay interval DEFAULT interval '0', headers jsonb DEFAULT NULL,
    data bytea DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = {functions}, kendall_queue, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    queue_id bigint := (SELECT q.id FROM queue q WHERE q.name = queue);
    -- Looked up first: `hello` holds the client's row until the commit.
    sender_id bigint := (SELECT c.id FROM client c WHERE c.name = sender AND c.present);
    receiver_id bigint := (SELECT c.id FROM client c WHERE c.name = receiver);
    answer record;
    code integer;
BEGIN
    IF queue_id IS NULL THEN
        RAISE EXCEPTION 'there is no queue "%"', queue USING ERRCODE = 'no_data_found';
    END IF;
    IF (priority BETWEEN 0 AND 1000) IS NOT TRUE THEN
        RAISE EXCEPTION 'priority is %; it goes from 0 to 1000', priority
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (content IS NULL) = (data IS NULL) THEN
        RAISE EXCEPTION 'a message has content or data, and not both'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF headers IS NOT NULL AND (jsonb_typeof(headers) <> 'object'
        OR EXISTS (SELECT FROM jsonb_each(headers) AS h WHERE jsonb_typeof(h.value) <> 'string')
        OR octet_length(headers::text) > 8192) THEN
        RAISE EXCEPTION 'headers are an object of texts, of 4096 bytes together'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT s.codes, s.ids INTO answer FROM send_many(
        ARRAY[coalesce(sender_id, hello(sender))], ARRAY[queue_id],
        ARRAY[coalesce(receiver_id, CASE WHEN receiver IS NOT NULL THEN hello(receiver) END)],
        ARRAY[coalesce(content, '')], ARRAY[priority],
        ARRAY[(extract(epoch FROM delay) * 1000)::bigint], ARRAY[data], ARRAY[headers::text],
        NULL, NULL) AS s;
    code := answer.codes[1];
    IF code <> 0 THEN
        RAISE EXCEPTION 'the message cannot be sent: %', CASE code
                WHEN 5 THEN 'a client cannot send to itself'
                WHEN 6 THEN 'it is longer than this queue service allows'
                ELSE 'code ' || code END
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN answer.ids[1];
END $$;
