-- Room that is given back when the disk is full. A vacuum is what makes room then, and needs some itself
-- where it has to begin a map beside a table or an index.
--
-- A `name` has a fixed length, so that nothing is ever kept beside this table: to empty it makes one new
-- file, which is empty, where an index beside it would need a page.
CREATE TABLE reserve (room name NOT NULL) WITH (fillfactor = 10, autovacuum_enabled = off);
