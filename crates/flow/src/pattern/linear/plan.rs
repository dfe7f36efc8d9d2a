//! Evaluation plan of a linear pattern.

use tidemill_types::FieldType;

use super::super::conditions::{ComparisonDomain, EVENT, FilterConditions, MATCH, reads_slot, swap_operands};
use super::super::plan::{EventSelector, MatchReference, PatternPlan, ReferenceKind, StepKind};
use crate::expr::{Comparison, Expr, Node};

/// Maximum number of captures of a match, because their null marks share a word. The automaton processes
/// patterns with more.
const CAPTURES_MAX: usize = 62;

/// Evaluation plan of a pattern or sequence whose steps are single events.
#[derive(Debug)]
pub(in super::super) struct LinearPlan {
    /// Values that a match stores, ordered by step.
    pub captures: Vec<Capture>,
    pub steps: Vec<LinearStep>,
    /// Sources and types of the columns that the selection reads, in order.
    pub columns: Vec<(ValueSource, FieldType)>,
    /// True if the first step is an `every` of its own without conditions on a match, so that any event may
    /// begin a match.
    pub restarts_always: bool,
}

/// A value of an event that a match stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Capture {
    pub step: usize,
    pub kind: ReferenceKind,
    pub ty: FieldType,
}

/// Source of a value that is read of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ValueSource {
    /// The capture with this index.
    Capture(usize),
    /// Always true.
    True,
    /// Always null.
    Null,
}

/// A step of a linear pattern.
#[derive(Debug)]
pub(in super::super) struct LinearStep {
    /// Index of the stream that the step reads.
    pub stream: usize,
    /// True if a match is complete after this step.
    pub is_last: bool,
    /// First step of the `every` group that ends with this step.
    pub every_end: Option<usize>,
    /// First step of the `every` group that contains this step.
    pub every_in: Option<usize>,
    /// Number of captures of a match that waits here; this step's own captures follow.
    pub width: usize,
    /// Number of captures of this step.
    pub own_captures: usize,
    /// Columns of slot 1 of the conditions.
    pub references: Vec<(ValueSource, FieldType)>,
    /// Conditions on the event alone, evaluated for whole batches.
    pub vectorized: Vec<Expr>,
    pub event_only: Vec<Expr>,
    /// Comparison by which the matches that an event satisfies are looked up.
    pub index: Option<IndexedComparison>,
    /// The other comparisons of a column with a capture.
    pub capture_comparisons: Vec<CaptureComparison>,
    /// The remaining conditions, in order.
    pub rest: Vec<Expr>,
    /// Columns of the event that the conditions read, ascending.
    pub event_columns: Vec<usize>,
}

/// Comparison `event op match`; each side is computed without the other. Strings are compared by hash.
#[derive(Debug)]
pub(in super::super) struct IndexedComparison {
    pub op: Comparison,
    pub domain: ComparisonDomain,
    pub event: ComparisonOperand,
    pub of_match: ComparisonOperand,
}

/// One side of a comparison.
#[derive(Debug)]
pub(in super::super) enum ComparisonOperand {
    /// A column of the event, or a capture of the match.
    Stored(usize),
    /// An expression of any type but string.
    Computed(Expr),
}

/// Comparison `event.column op capture`.
#[derive(Debug)]
pub(in super::super) struct CaptureComparison {
    pub op: Comparison,
    pub domain: ComparisonDomain,
    pub column: usize,
    pub capture: usize,
}

impl LinearPlan {
    /// Plans a pattern whose steps are single events. Returns `None` for any other pattern, for one with too
    /// many captures, and for one with parts that have a maximum duration of their own.
    pub fn of(plan: &PatternPlan) -> Option<Self> {
        let single = plan.steps.iter().enumerate().all(|(i, step)| {
            step.kind == StepKind::Stream
                && step.is_first == (i == 0)
                && step.next.is_none_or(|next| next == i + 1)
        });
        if !single || plan.steps.is_empty() || !plan.parts.is_empty() {
            return None;
        }
        let mut captures: Vec<Capture> = Vec::new();
        let read = plan.steps.iter().enumerate().flat_map(|(i, step)| {
            // a filter sees earlier steps only
            step.references.iter().filter(move |r| r.step < i)
        });
        for reference in read.chain(&plan.columns) {
            let capture = Capture { step: reference.step, kind: reference.kind, ty: reference.ty };
            if matches!(locate(reference, &[capture], usize::MAX), ValueSource::Capture(_))
                && !captures.contains(&capture)
            {
                captures.push(capture);
            }
        }
        captures.sort_by_key(|c| c.step);
        if captures.len() > CAPTURES_MAX {
            return None;
        }
        let steps: Vec<LinearStep> = (0..plan.steps.len()).map(|i| step(plan, i, &captures)).collect();
        let first = &steps[0];
        let starts_always = first.every_end == Some(0)
            && !first.is_last
            && first.index.is_none()
            && first.capture_comparisons.is_empty()
            && first.rest.is_empty();
        let columns = plan.columns.iter().map(|r| (locate(r, &captures, usize::MAX), r.ty)).collect();
        Some(Self { captures, steps, columns, restarts_always: starts_always })
    }

    /// Returns whether a capture of type `ty` exists. Strings and objects are stored in the arena, not in the
    /// words of the match.
    pub fn captures_type(&self, ty: FieldType) -> bool {
        self.captures.iter().any(|c| c.ty == ty)
    }
}

/// Returns the source of a reference in a match that waits at step `before`.
fn locate(reference: &MatchReference, captures: &[Capture], before: usize) -> ValueSource {
    // a single event is the first and the last of its step
    let there = matches!(
        reference.selector,
        EventSelector::Newest | EventSelector::First(0) | EventSelector::Last(0)
    );
    if !there || reference.step >= before {
        return ValueSource::Null;
    }
    let wanted = Capture { step: reference.step, kind: reference.kind, ty: reference.ty };
    match reference.kind {
        ReferenceKind::Presence => ValueSource::True,
        _ => captures.iter().position(|c| *c == wanted).map_or(ValueSource::Null, ValueSource::Capture),
    }
}

fn step(plan: &PatternPlan, i: usize, captures: &[Capture]) -> LinearStep {
    let step = &plan.steps[i];
    let references: Vec<_> = step.references.iter().map(|r| (locate(r, captures, i), r.ty)).collect();
    let FilterConditions { vectorized: masked, event_only: alone, event_and_match: paired, mut rest } =
        FilterConditions::of(&step.filters);
    let (mut index, mut pairs, mut others): (Option<IndexedComparison>, Vec<CaptureComparison>, Vec<Expr>) =
        (None, vec![], vec![]);
    let mut found: Vec<(IndexedComparison, Expr)> = Vec::new();
    for condition in paired {
        match as_indexed_comparison(&condition, &references) {
            Some(separate) => found.push((separate, condition)),
            None => others.push(condition),
        }
    }
    // equality selects fewest matches; a sequence has at most two matches to scan
    let orders = |index: &IndexedComparison| index.op != Comparison::Ne && !plan.sequence;
    let best = found.iter().position(|(x, _)| x.op == Comparison::Eq && orders(x));
    let best = best.or_else(|| found.iter().position(|(x, _)| orders(x)));
    for (k, (separate, condition)) in found.into_iter().enumerate() {
        match separate {
            separate if Some(k) == best => index = Some(separate),
            IndexedComparison {
                op,
                domain,
                event: ComparisonOperand::Stored(column),
                of_match: ComparisonOperand::Stored(capture),
            } => {
                pairs.push(CaptureComparison { op, domain, column, capture });
            }
            _ => others.push(condition),
        }
    }
    others.append(&mut rest);
    LinearStep {
        stream: step.stream,
        is_last: step.next.is_none(),
        every_end: step.every_end,
        every_in: step.every_in,
        width: captures.iter().filter(|c| c.step < i).count(),
        own_captures: captures.iter().filter(|c| c.step == i).count(),
        references,
        vectorized: masked,
        event_only: alone,
        index,
        capture_comparisons: pairs,
        rest: others,
        event_columns: columns_of(&step.filters),
    }
}

/// Returns the columns of the event that filters read, ascending and without duplicates.
fn columns_of(filters: &[Expr]) -> Vec<usize> {
    let mut columns = Vec::new();
    let mut note = |expr: &Expr| {
        if let Node::Column { slot: EVENT, column } = expr.node {
            columns.push(column);
        }
    };
    filters.iter().for_each(|filter| filter.walk(&mut note));
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Splits `event op match` or `match op event` if each side reads only one of the two.
fn as_indexed_comparison(
    condition: &Expr,
    references: &[(ValueSource, FieldType)],
) -> Option<IndexedComparison> {
    let Node::Compare(op, a, b) = &condition.node else { return None };
    let domain = ComparisonDomain::of(*op, a.ty, b.ty)?;
    let (op, event, of_match) = match (reads_slot(a, MATCH), reads_slot(b, MATCH)) {
        (false, true) if !reads_slot(b, EVENT) => (*op, a, b),
        (true, false) if !reads_slot(a, EVENT) => (swap_operands(*op), b, a),
        _ => return None,
    };
    let event = match event.node {
        Node::Column { column, .. } => ComparisonOperand::Stored(column),
        _ => ComparisonOperand::Computed(event.as_ref().clone()),
    };
    let of_match = match of_match.node {
        Node::Column { column, .. } => match references.get(column) {
            Some((ValueSource::Capture(capture), _)) => ComparisonOperand::Stored(*capture),
            _ => ComparisonOperand::Computed(of_match.as_ref().clone()),
        },
        _ => ComparisonOperand::Computed(of_match.as_ref().clone()),
    };
    let computed = [&event, &of_match].iter().any(|side| matches!(side, ComparisonOperand::Computed(_)));
    if domain == ComparisonDomain::String && computed {
        return None;
    }
    Some(IndexedComparison { op, domain, event, of_match })
}
