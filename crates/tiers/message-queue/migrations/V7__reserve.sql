-- Room that is given back when the disk is full. A vacuum is what makes room then, and needs some itself
-- where it has to begin a map beside a table or an index.
--
-- A `name` has a fixed length, so that nothing is ever kept beside this table: to empty it makes one new
-- file, which is empty, where an index beside it would need a page.
CREATE TABLE reserve (room name NOT NULL) WITH (fillfactor = 10, autovacuum_enabled = off);

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
