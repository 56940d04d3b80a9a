-- PostgreSQL asked for the queue and the clients of each message by itself: half of what a batch of sends
-- costs. The functions ask once for a batch, and hold the queue's row as it did. Clients are never
-- deleted; a queue is by `delete_queue` alone, which removes its messages itself.
ALTER TABLE message
    DROP CONSTRAINT message_queue_id_fkey,
    DROP CONSTRAINT message_sender_id_fkey,
    DROP CONSTRAINT message_receiver_id_fkey,
    DROP CONSTRAINT message_leased_by_fkey;
