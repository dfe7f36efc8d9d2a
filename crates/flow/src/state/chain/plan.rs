//! A chain of single events, laid out for speed.

use tidemill_types::FieldType;

use super::super::conditions::{Conditions, Domain, EVENT, MATCH, looks_at, turned};
use super::super::plan::{Form, Reference, StatePlan, What, Which};
use crate::expr::{Comparison, Expr, Node};

/// More than these values of a match are left to the automaton: they share a word of marks.
const CAPTURES_MAX: usize = 62;

/// How a pattern or sequence of single events is worked off.
#[derive(Debug)]
pub(in super::super) struct ChainPlan {
    /// The values that a match keeps, by step.
    pub captures: Vec<Capture>,
    /// The steps.
    pub steps: Vec<ChainStep>,
    /// What the selection reads, in order, and the types.
    pub columns: Vec<(Read, FieldType)>,
    /// The first step is repeated by itself, so that a match may always begin.
    pub starts_always: bool,
}

/// A value that a match keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Capture {
    pub step: usize,
    pub what: What,
    pub ty: FieldType,
}

/// Where something that is read of a match lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Read {
    /// The capture.
    Capture(usize),
    /// It is always true.
    True,
    /// It is always null.
    Null,
}

/// A step.
#[derive(Debug)]
pub(in super::super) struct ChainStep {
    /// The stream that it reads.
    pub stream: usize,
    /// Where a match goes on.
    pub last: bool,
    /// The first step of the `every` group that ends here.
    pub every_end: Option<usize>,
    /// The first step of the `every` group that it lies in.
    pub every_in: Option<usize>,
    /// How many values a match has when it waits here; the next ones are this step's own.
    pub width: usize,
    /// How many of its own there are.
    pub own: usize,
    /// Slot 1 of the conditions.
    pub references: Vec<(Read, FieldType)>,
    /// Conditions on the event alone.
    pub masked: Vec<Expr>,
    pub alone: Vec<Expr>,
    /// The comparison by which matches that an event satisfies are found.
    pub index: Option<Index>,
    /// The other comparisons of a column with a capture.
    pub pairs: Vec<Pair>,
    /// The rest, in order.
    pub rest: Vec<Expr>,
    /// The columns of the event that the conditions look at.
    pub looks_at: Vec<usize>,
}

/// `event op match`, each side a number of its own (for texts their hash).
#[derive(Debug)]
pub(in super::super) struct Index {
    pub op: Comparison,
    pub domain: Domain,
    pub event: Side,
    pub of_match: Side,
}

/// One side of a comparison.
#[derive(Debug)]
pub(in super::super) enum Side {
    /// A column of the event, a capture of the match.
    At(usize),
    /// Anything else; no text.
    Computed(Expr),
}

/// `event.column op capture`.
#[derive(Debug)]
pub(in super::super) struct Pair {
    pub op: Comparison,
    pub domain: Domain,
    pub column: usize,
    pub capture: usize,
}

impl ChainPlan {
    /// The layout of a plan whose steps are single events; `None` for any other.
    pub fn of(plan: &StatePlan) -> Option<Self> {
        let single = plan.steps.iter().enumerate().all(|(i, step)| {
            step.form == Form::Stream && step.start == (i == 0) && step.next.is_none_or(|next| next == i + 1)
        });
        if !single || plan.steps.is_empty() {
            return None;
        }
        let mut captures: Vec<Capture> = Vec::new();
        let read = plan.steps.iter().enumerate().flat_map(|(i, step)| {
            // a filter sees earlier steps only
            step.references.iter().filter(move |r| r.step < i)
        });
        for reference in read.chain(&plan.columns) {
            let capture = Capture { step: reference.step, what: reference.what, ty: reference.ty };
            if matches!(locate(reference, &[capture], usize::MAX), Read::Capture(_))
                && !captures.contains(&capture)
            {
                captures.push(capture);
            }
        }
        captures.sort_by_key(|c| c.step);
        if captures.len() > CAPTURES_MAX {
            return None;
        }
        let steps: Vec<ChainStep> = (0..plan.steps.len()).map(|i| step(plan, i, &captures)).collect();
        let first = &steps[0];
        let starts_always = first.every_end == Some(0)
            && !first.last
            && first.index.is_none()
            && first.pairs.is_empty()
            && first.rest.is_empty();
        let columns = plan.columns.iter().map(|r| (locate(r, &captures, usize::MAX), r.ty)).collect();
        Some(Self { captures, steps, columns, starts_always })
    }

    /// Whether some value lies in a column beside the matches: a text or an object.
    pub fn has(&self, ty: FieldType) -> bool {
        self.captures.iter().any(|c| c.ty == ty)
    }
}

/// Where a reference lies in a match that has come to step `before`.
fn locate(reference: &Reference, captures: &[Capture], before: usize) -> Read {
    // a single event is the first and the last of its step
    let there = matches!(reference.which, Which::Newest | Which::First(0) | Which::Last(0));
    if !there || reference.step >= before {
        return Read::Null;
    }
    let wanted = Capture { step: reference.step, what: reference.what, ty: reference.ty };
    match reference.what {
        What::Presence => Read::True,
        _ => captures.iter().position(|c| *c == wanted).map_or(Read::Null, Read::Capture),
    }
}

fn step(plan: &StatePlan, i: usize, captures: &[Capture]) -> ChainStep {
    let step = &plan.steps[i];
    let references: Vec<_> = step.references.iter().map(|r| (locate(r, captures, i), r.ty)).collect();
    let Conditions { masked, alone, paired, mut rest } = Conditions::of(&step.filters);
    let (mut index, mut pairs, mut others): (Option<Index>, Vec<Pair>, Vec<Expr>) = (None, vec![], vec![]);
    let mut found: Vec<(Index, Expr)> = Vec::new();
    for condition in paired {
        match separate(&condition, &references) {
            Some(separate) => found.push((separate, condition)),
            None => others.push(condition),
        }
    }
    // equality leaves fewest; a sequence has no more than a match or two to look through
    let orders = |index: &Index| index.op != Comparison::Ne && !plan.sequence;
    let best = found.iter().position(|(x, _)| x.op == Comparison::Eq && orders(x));
    let best = best.or_else(|| found.iter().position(|(x, _)| orders(x)));
    for (k, (separate, condition)) in found.into_iter().enumerate() {
        match separate {
            separate if Some(k) == best => index = Some(separate),
            Index { op, domain, event: Side::At(column), of_match: Side::At(capture) } => {
                pairs.push(Pair { op, domain, column, capture });
            }
            _ => others.push(condition),
        }
    }
    others.append(&mut rest);
    ChainStep {
        stream: step.stream,
        last: step.next.is_none(),
        every_end: step.every_end,
        every_in: step.every_in,
        width: captures.iter().filter(|c| c.step < i).count(),
        own: captures.iter().filter(|c| c.step == i).count(),
        references,
        masked,
        alone,
        index,
        pairs,
        rest: others,
        looks_at: columns_of(&step.filters),
    }
}

/// The columns of the event that filters look at.
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

/// `event op match` or `match op event`, where each side looks at one of the two only.
fn separate(condition: &Expr, references: &[(Read, FieldType)]) -> Option<Index> {
    let Node::Compare(op, a, b) = &condition.node else { return None };
    let domain = Domain::of(*op, a.ty, b.ty)?;
    let (op, event, of_match) = match (looks_at(a, MATCH), looks_at(b, MATCH)) {
        (false, true) if !looks_at(b, EVENT) => (*op, a, b),
        (true, false) if !looks_at(a, EVENT) => (turned(*op), b, a),
        _ => return None,
    };
    let event = match event.node {
        Node::Column { column, .. } => Side::At(column),
        _ => Side::Computed(event.as_ref().clone()),
    };
    let of_match = match of_match.node {
        Node::Column { column, .. } => match references.get(column) {
            Some((Read::Capture(capture), _)) => Side::At(*capture),
            _ => Side::Computed(of_match.as_ref().clone()),
        },
        _ => Side::Computed(of_match.as_ref().clone()),
    };
    let computed = [&event, &of_match].iter().any(|side| matches!(side, Side::Computed(_)));
    if domain == Domain::Text && computed {
        return None;
    }
    Some(Index { op, domain, event, of_match })
}
