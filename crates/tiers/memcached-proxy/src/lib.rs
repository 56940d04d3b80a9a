//! The memcached middleware: one network side, bounded request queue, workers, replicated writes.
