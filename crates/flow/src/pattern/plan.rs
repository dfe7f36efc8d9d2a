//! Compiled form of patterns and sequences.

use std::sync::{Arc, OnceLock};

use tidemill_types::FieldType;

use super::linear::LinearPlan;
use super::scope::StepNames;
use crate::expr::Expr;
use crate::limits::PatternLimits;

/// A compiled pattern or sequence.
#[derive(Debug, Clone, Default)]
pub struct PatternPlan {
    /// True for a sequence, where no other event may come between two steps.
    pub sequence: bool,
    /// The steps in order; a logical step takes two entries, one per side.
    pub steps: Vec<StepPlan>,
    /// Maximum duration of a match, milliseconds.
    pub within: Option<i64>,
    /// Parts with a maximum duration of their own.
    pub parts: Vec<TimedPart>,
    /// The columns that the selection reads of a match, in order.
    pub columns: Vec<MatchReference>,
    /// Memory limits.
    pub limits: PatternLimits,
    /// Names of the steps; empty if they are not known.
    pub names: Vec<StepNames>,
    /// Plan of the faster evaluation if the pattern is linear. Computed on first use, because `columns` must
    /// be complete.
    pub(super) linear: OnceLock<Option<Arc<LinearPlan>>>,
}

impl PatternPlan {
    pub(super) fn linear_plan(&self) -> Option<&Arc<LinearPlan>> {
        self.linear.get_or_init(|| LinearPlan::of(self).map(Arc::new)).as_ref()
    }

    /// Returns whether the matches that an event of this stream completes are emitted as one chunk. If a
    /// single step reads the stream, each match is a chunk of its own.
    pub(super) fn emits_matches_together(&self, stream: usize) -> bool {
        self.steps.iter().filter(|step| step.stream == stream).nth(1).is_some()
    }

    /// Returns the step that is offered an event at position `i`, where steps are offered an event from the
    /// last to the first. The sides of a logical step may be swapped: the side named first is offered the
    /// event first, unless only the other side is an absence.
    pub(super) fn step_in_offer_order(&self, i: usize) -> usize {
        match self.steps[i].kind {
            StepKind::Side(side) if side.left == side.is_offered_first() => side.partner,
            _ => i,
        }
    }
}

/// A part of a pattern with a maximum duration of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedPart {
    /// First step of the part; of a logical step its first side.
    pub first: usize,
    /// Last step of the part; of a logical step its second side.
    pub last: usize,
    /// Maximum duration from its first event to its last one, milliseconds.
    pub within: i64,
}

/// A step, or one side of a logical step.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// Index of the stream that the step reads.
    pub stream: usize,
    /// Conditions on an event; all must hold. Slot 0 is the event, slot 1 the values in `references`.
    pub filters: Vec<Expr>,
    /// Source texts of the conjuncts of the filters; empty if not known.
    pub filter_texts: Vec<String>,
    /// Columns of slot 1 of the filters.
    pub references: Vec<MatchReference>,
    /// The kind of step.
    pub kind: StepKind,
    /// True for the first step, or a side of it.
    pub is_first: bool,
    /// Index of the next step; `None` for the last one.
    pub next: Option<usize>,
    /// First step of the `every` group that ends with this step.
    pub every_end: Option<usize>,
    /// First step of the `every` group that contains this step.
    pub every_in: Option<usize>,
}

/// The kinds of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// One event.
    Stream,
    /// Several events.
    Count {
        /// Minimum number of events.
        min: usize,
        /// Maximum number of events; unbounded if `None`.
        max: Option<usize>,
    },
    /// A side of a logical step.
    Side(LogicalStepSide),
    /// No event for this many milliseconds.
    Absent(i64),
}

/// A side of a logical step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalStepSide {
    /// `and`: both sides are needed; otherwise `or`.
    pub and: bool,
    /// True for the side named first.
    pub left: bool,
    /// Step index of the other side.
    pub partner: usize,
    /// `Some` if the side is an absence, with its duration in milliseconds if it has one.
    pub absent: Option<Option<i64>>,
    /// True if the other side is an absence.
    pub partner_absent: bool,
}

impl LogicalStepSide {
    /// Returns whether this side is offered an event before the other one: the side named first, unless only
    /// the other one is an absence.
    pub(super) fn is_offered_first(self) -> bool {
        match self.left {
            true => self.absent.is_some() || !self.partner_absent,
            false => self.absent.is_some() && !self.partner_absent,
        }
    }
}

/// A value that is read of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchReference {
    /// Index of the step.
    pub step: usize,
    /// Selects one of the step's events, or all.
    pub selector: EventSelector,
    /// Kind of value to read.
    pub kind: ReferenceKind,
    /// Type of the value.
    pub ty: FieldType,
}

/// Kind of value that is read of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// `true` if the event exists, else null.
    Presence,
    /// The event's timestamp, milliseconds.
    Time,
    /// The attribute with this index.
    Attribute(usize),
}

/// Selection among the events of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSelector {
    /// The last event.
    Newest,
    /// The event at this offset from the first.
    First(usize),
    /// The event at this offset before the last.
    Last(usize),
    /// All events, as a list.
    All,
}

impl StepPlan {
    /// Returns whether the step is an absence, or the absent side of a logical step.
    pub fn is_absence(&self) -> bool {
        matches!(self.kind, StepKind::Absent(_))
            || matches!(self.kind, StepKind::Side(side) if side.absent.is_some())
    }

    /// Returns the duration of the absence, milliseconds; `None` if it has none, or if the step is no
    /// absence.
    pub fn absence_duration(&self) -> Option<i64> {
        match self.kind {
            StepKind::Absent(wait) => Some(wait),
            StepKind::Side(side) => side.absent.flatten(),
            _ => None,
        }
    }
}
