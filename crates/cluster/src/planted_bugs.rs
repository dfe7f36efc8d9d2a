//! Bugs that a simulation plants, to show that its auditors find them. Without the feature `sim` none exist.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The lease counts from reading a heartbeat back instead of from sending it.
    LeaseFromReading,
    /// The next owner answers without having applied a barrier record.
    NoBarrier,
    /// An owner answers without looking at its lease.
    AnswerAfterLease,
    /// A removal counts although the member has sent heartbeats that its author had not read.
    RemoveWithoutSequence,
    /// The next owner stamps by its own clock alone.
    StampBelowReserve,
    /// The next owner appends its barrier at once instead of waiting for the end of the former lease.
    NoWait,
    /// An owner answers after it has resigned.
    AnswerAfterResigning,
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
