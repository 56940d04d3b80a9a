//! What one action may use at most, and the answer for one that uses more.

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ActionBounds {
    /// Bytes of memory of all its processes.
    pub memory: u64,
    /// Bytes that it has on the worker's disk.
    pub disk: u64,
    /// Processes at the same time, each thread counted as one.
    pub processes: u64,
}

impl ActionBounds {
    /// Processes and threads that the kernel lets a slot have. A slot's own are among them, and space for an action
    /// to be seen beyond its bound: of one that is refused processes at the bound the worker would see nothing.
    pub(super) const fn of_slot(&self) -> u64 {
        self.processes.saturating_mul(2).saturating_add(256)
    }
}

/// The bound that an action went beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    Memory,
    Disk,
    Processes,
}

impl Beyond {
    /// The exit code of the action: above those of signals, so that it says which bound it was.
    pub(super) fn exit_code(self) -> i32 {
        match self {
            Self::Memory => 201,
            Self::Disk => 202,
            Self::Processes => 203,
        }
    }

    /// For the one who wrote the action, and the one who set the bound.
    pub(super) fn words(self, bounds: &ActionBounds) -> String {
        let (much, flag) = match self {
            Self::Memory => (format!("{} bytes of memory", bounds.memory), "memory"),
            Self::Disk => (format!("{} bytes on the worker's disk", bounds.disk), "disk"),
            Self::Processes => (format!("{} processes and threads", bounds.processes), "processes"),
        };
        format!("the action was ended: it had more than {much}, the worker's --action-{flag}")
    }
}
