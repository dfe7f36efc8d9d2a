//! Bugs and failures that a simulation plants, to show that its auditors find them. Without the feature `sim` none exist.

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
    /// A partition that is opened again stores the rows of records once more that were applied before.
    RepeatEffects,
    /// A process that takes a partition over keeps the rows that it had in its tail when it owned the partition before.
    KeepFormerTail,
    /// The state of a partition is published without the events that wait for other systems.
    PublishWithoutQueues,
    /// The state of a partition is published once at each offset, although events were delivered since.
    PublishOncePerOffset,
    /// A standby that becomes the owner does not send what it has kept.
    DropHeldEmissions,
    /// A standby keeps no events for sinks.
    DropKeptEvents,
    /// A partition that is opened begins at the end of its log instead of its checkpoint.
    SkipLog,
    /// Events for another partition are emitted in the order of a hash map.
    EmitInHashOrder,
    /// A document counts as inserted before all others if no caller waits for the command.
    DependOnCaller,
    /// A partition that is opened again keeps the rows of the record at which it stopped.
    KeepUnappliedRows,
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

/// Message of a planted failure.
#[cfg(feature = "sim")]
pub const PLANTED_FAILURE: &str = "a planted failure";

#[cfg(feature = "sim")]
thread_local! {
    static RECORDS_LEFT: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// Lets the application of a record fail on this thread after `records` others; `None` for no failure.
#[cfg(feature = "sim")]
pub fn plant_failure(records: Option<u32>) {
    RECORDS_LEFT.set(records);
}

/// Counts a record, and fails if it is the one that was planted.
#[cfg(feature = "sim")]
pub fn check_planted_failure() -> tidemill_types::Result<()> {
    match RECORDS_LEFT.get() {
        None => Ok(()),
        Some(0) => {
            RECORDS_LEFT.set(None);
            Err(tidemill_types::Error::unavailable(PLANTED_FAILURE))
        }
        Some(left) => {
            RECORDS_LEFT.set(Some(left - 1));
            Ok(())
        }
    }
}

/// Does nothing.
#[cfg(not(feature = "sim"))]
#[inline]
pub fn check_planted_failure() -> tidemill_types::Result<()> {
    Ok(())
}
