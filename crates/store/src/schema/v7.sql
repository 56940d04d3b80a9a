-- Schema version 7: a second of one client before the load of a run.
-- Never edited once released: a change is a new file with the next number.

-- It is stored as a run of its own, with rows of all the same kinds: the key of the run before whose
-- load it was measured, whose configuration it has plus 2000000. NULL in all other runs.
ALTER TABLE runs ADD COLUMN one_client_of INTEGER REFERENCES runs (id);
