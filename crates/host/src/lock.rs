//! Locks between the threads of a host.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose holder panicked is as good as any: what it guards is whole after each step.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
