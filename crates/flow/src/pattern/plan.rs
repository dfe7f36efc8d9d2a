//! What a pattern or a sequence consists of.

use std::sync::{Arc, OnceLock};

use tidemill_types::FieldType;

use super::linear::LinearPlan;
use super::scope::StepNames;
use crate::expr::Expr;

/// What one pattern may hold in memory. An event that would take it beyond fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternLimits {
    /// Matches that are not done yet.
    pub partial_matches_max: usize,
    /// Events that one counted step of one match collects.
    pub collected_max: usize,
}

impl Default for PatternLimits {
    fn default() -> Self {
        Self { partial_matches_max: 1_000_000, collected_max: 100_000 }
    }
}

/// A compiled pattern or sequence.
#[derive(Debug, Clone, Default)]
pub struct PatternPlan {
    /// Nothing may come between two steps.
    pub sequence: bool,
    /// The steps in order; the sides of a logical step are two of them.
    pub steps: Vec<StepPlan>,
    /// How long a match may take, milliseconds.
    pub within: Option<i64>,
    /// What the selection reads of a match, in order.
    pub columns: Vec<MatchReference>,
    /// What it may hold.
    pub limits: PatternLimits,
    /// The names of the steps, where they are known.
    pub names: Vec<StepNames>,
    /// How it is worked off when it is a chain; made when it is first needed, once the columns are known.
    pub(super) linear: OnceLock<Option<Arc<LinearPlan>>>,
}

impl PatternPlan {
    pub(super) fn linear_plan(&self) -> Option<&Arc<LinearPlan>> {
        self.linear.get_or_init(|| LinearPlan::of(self).map(Arc::new)).as_ref()
    }

    /// Whether the matches that an event of this stream completes go on together: those that a single step reads go on
    /// one by one.
    pub(super) fn emits_matches_together(&self, stream: usize) -> bool {
        self.steps.iter().filter(|step| step.stream == stream).nth(1).is_some()
    }

    /// Step `i` where the steps get an event from the last to the first, or the other side of that logical step: of two
    /// sides the one that is named first gets it first, or the one that is absent.
    pub(super) fn step_in_offer_order(&self, i: usize) -> usize {
        match self.steps[i].kind {
            StepKind::Side(side) if side.left == side.is_offered_first() => side.partner,
            _ => i,
        }
    }
}

/// A step, or one side of a logical one.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// The stream that it reads.
    pub stream: usize,
    /// What an event must satisfy: slot 0 is the event, slot 1 what is read of the match so far.
    pub filters: Vec<Expr>,
    /// The conditions that they consist of, as they are written; empty where that is not known.
    pub filter_texts: Vec<String>,
    /// Slot 1 of the filters.
    pub references: Vec<MatchReference>,
    /// What kind of step it is.
    pub kind: StepKind,
    /// The first step or a side of it.
    pub is_first: bool,
    /// Where a match goes on; `None` for the last step.
    pub next: Option<usize>,
    /// The first step of the `every` group that ends with this one.
    pub every_end: Option<usize>,
    /// The first step of the `every` group that it lies in.
    pub every_in: Option<usize>,
}

/// The kinds of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// One event.
    Stream,
    /// Several events.
    Count {
        /// Fewest.
        min: usize,
        /// Most.
        max: Option<usize>,
    },
    /// A side of a logical step.
    Side(LogicalStepSide),
    /// No event for so many milliseconds.
    Absent(i64),
}

/// A side of a logical step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalStepSide {
    /// Both sides are needed.
    pub and: bool,
    /// It is the side named first.
    pub left: bool,
    /// The other side.
    pub partner: usize,
    /// It is an absence, and whether that has a time.
    pub absent: Option<Option<i64>>,
    /// The other side is an absence.
    pub partner_absent: bool,
}

impl LogicalStepSide {
    /// Whether it gets an event before the other side does: the one that is named first, or the one that is absent.
    pub(super) fn is_offered_first(self) -> bool {
        match self.left {
            true => self.absent.is_some() || !self.partner_absent,
            false => self.absent.is_some() && !self.partner_absent,
        }
    }
}

/// Something that is read of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchReference {
    /// The step.
    pub step: usize,
    /// Which of its events.
    pub selector: EventSelector,
    /// What of it.
    pub kind: ReferenceKind,
    /// The type of its value.
    pub ty: FieldType,
}

/// What is read of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// `true` when there is one, else null.
    Presence,
    /// Its timestamp.
    Time,
    /// An attribute.
    Attribute(usize),
}

/// Which of the events of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSelector {
    /// The last one.
    Newest,
    /// So many behind the first.
    First(usize),
    /// So many before the last.
    Last(usize),
    /// All, as a list.
    All,
}

impl StepPlan {
    /// Whether it waits for nothing to happen.
    pub fn is_absence(&self) -> bool {
        matches!(self.kind, StepKind::Absent(_))
            || matches!(self.kind, StepKind::Side(side) if side.absent.is_some())
    }

    /// How long nothing must happen.
    pub fn absence_duration(&self) -> Option<i64> {
        match self.kind {
            StepKind::Absent(wait) => Some(wait),
            StepKind::Side(side) => side.absent.flatten(),
            _ => None,
        }
    }
}
