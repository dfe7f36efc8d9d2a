//! Bugs that a simulation plants, to show that its auditors find them. Without the feature `sim` none exist.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Emissions leave a partition before the record that caused them is on the disk.
    ForwardBeforeDurable,
    /// Checkpoints omit the emissions that are not known to be durable.
    CheckpointWithoutOutbox,
    /// Tables are flushed up to what is applied, even if the log is not durable up to there.
    FlushBeforeDurable,
    /// Checkpoints omit the ids that duplicates are recognized by.
    CheckpointWithoutIds,
    /// Senders get their acknowledgement before the log is durable.
    AcknowledgeBeforeSync,
}

#[cfg(feature = "sim")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// Plants `bug` for this thread; `None` for no bug.
#[cfg(feature = "sim")]
pub fn plant(bug: Option<PlantedBug>) {
    PLANTED.set(bug);
}

/// Returns whether `bug` is planted.
#[cfg(feature = "sim")]
pub fn is_planted(bug: PlantedBug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Returns false.
#[cfg(not(feature = "sim"))]
#[inline]
pub fn is_planted(_: PlantedBug) -> bool {
    false
}
