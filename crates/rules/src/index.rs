//! Selects the rules that match the events of a batch.
//!
//! Every rule of a stream has conditions on the event alone. Those that compare a field with constants are
//! looked up instead of computed: `flight == 1545` and `origin in ["EWR", "JFK"]` through a hash of the
//! constants, `delay > 20 and delay <= 40` through sorted bounds. A thousand rules, each with its own
//! constant, then cost about as much as one. The remaining conditions are computed for 64 events at once; a
//! condition that several rules share is computed once.

mod range;

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::expr::block::{BoolOp, RowBlock, TriMask, for_each, integer_const, plain_column};
use crate::expr::eval::truth;
use crate::expr::row::ColumnData;
use crate::expr::{Bindings, Columns, CompareOp, Const, Expr, ExprNode, ExprType, Row, RuleValue};
use crate::plan::RulePlan;
use range::{Interval, RangeIndex};

/// Fewest rules that must compare a field with constants for a hash index on it to pay off.
const EQUAL_RULES_MIN: usize = 4;
/// Fewest rules that must bound a field for an index of sorted bounds to pay off.
const RANGE_RULES_MIN: usize = 8;
/// Below this number of rows, row-at-a-time evaluation is faster than 64 at once.
const BLOCK_ROWS_MIN: usize = 6;

/// Index over the rules of a stream, in the order in which they run.
#[derive(Debug, Default)]
pub struct StreamIndex {
    /// Indexes of the rules in the program. The position of a rule in this list is its rank.
    pub rules: Vec<usize>,
    /// Conditions left to compute for each rank, as indexes into `conjuncts`.
    checks: Vec<Vec<u32>>,
    /// Ranks that are in no index, so that every event is a candidate.
    always: Vec<u32>,
    texts: Vec<EqualIndex<Box<str>>>,
    integers: Vec<EqualIndex<i64>>,
    ranges: Vec<RangeIndex>,
    conjuncts: Vec<Conjunct>,
}

#[derive(Debug)]
struct EqualIndex<K> {
    column: usize,
    ranks: HashMap<K, Vec<u32>>,
}

/// A condition of one or more rules.
#[derive(Debug)]
struct Conjunct {
    expr: Expr,
    op: BoolOp,
    shared: bool,
}

/// Result and scratch space of [`StreamIndex::select`].
#[derive(Debug, Default)]
pub struct CandidateRules {
    /// Matches as `row << 32 | rank`, in ascending order; the row is relative to the block.
    pub hits: Vec<u64>,
    masks: Vec<u64>,
    touched: Vec<u32>,
    cache: Vec<Option<TriMask>>,
}

/// The index that looks a rule up instead of computing its condition, with its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexAccess {
    Equal(usize),
    Range(usize),
}

impl StreamIndex {
    /// Creates the index of the rules in `members`, which are indexes into `rules`. `indexed: false` computes
    /// everything.
    pub fn new(rules: &[RulePlan], members: &[usize], indexed: bool) -> Self {
        let mut order = members.to_vec();
        // a stable sort: rules of equal priority stay in order of declaration
        order.sort_by_key(|i| std::cmp::Reverse(rules[*i].priority));
        let mut index = Self { rules: order, ..Self::default() };
        let plans: Vec<&RulePlan> = index.rules.iter().map(|i| &rules[*i]).collect();
        let anchors = if indexed { choose_access(&plans) } else { vec![None; plans.len()] };
        let mut intervals: BTreeMap<usize, Vec<(u32, Interval)>> = BTreeMap::new();
        let mut ids: HashMap<String, u32> = HashMap::new();
        for (rank, (plan, anchor)) in plans.iter().zip(&anchors).enumerate() {
            let rank = rank as u32;
            match anchor {
                Some(IndexAccess::Equal(column)) => index.add_equal(rank, plan, *column),
                Some(IndexAccess::Range(column)) => {
                    let interval = Interval::of(plan, *column).unwrap_or(Interval::EMPTY);
                    intervals.entry(*column).or_default().push((rank, interval));
                }
                None => index.always.push(rank),
            }
            let left: Vec<&Expr> = remaining_conditions(plan, *anchor);
            let checks = left.into_iter().map(|expr| index.conjunct(expr, &mut ids)).collect();
            index.checks.push(checks);
        }
        for (column, list) in intervals {
            match RangeIndex::new(column, &list) {
                Some(range) => index.ranges.push(range),
                // too many rules overlap: compute them
                None => {
                    for (rank, _) in list {
                        index.always.push(rank);
                        let all = plans[rank as usize].checks.iter().map(|c| &c.expr);
                        let checks = all.map(|expr| index.conjunct(expr, &mut ids)).collect();
                        index.checks[rank as usize] = checks;
                    }
                }
            }
        }
        index.always.sort_unstable();
        index
    }

    fn conjunct(&mut self, expr: &Expr, ids: &mut HashMap<String, u32>) -> u32 {
        let key = format!("{expr:?}");
        if let Some(id) = ids.get(&key) {
            self.conjuncts[*id as usize].shared = true;
            return *id;
        }
        let id = self.conjuncts.len() as u32;
        self.conjuncts.push(Conjunct { expr: expr.clone(), op: BoolOp::compile(expr), shared: false });
        ids.insert(key, id);
        id
    }

    fn add_equal(&mut self, rank: u32, plan: &RulePlan, column: usize) {
        let Some((_, constants)) =
            plan.checks.iter().find_map(|c| equal_constants(&c.expr).filter(|(c, _)| *c == column))
        else {
            return;
        };
        for constant in constants {
            match constant {
                Const::Str(s) => {
                    let ranks = slot(&mut self.texts, column).entry(Box::from(s.as_ref())).or_default();
                    push_once(ranks, rank);
                }
                Const::Int(n) | Const::Time(n) => {
                    let ranks = slot(&mut self.integers, column).entry(n).or_default();
                    push_once(ranks, rank);
                }
                // `equal_constants` returns no others
                _ => {}
            }
        }
    }

    /// Finds the rules whose conditions on the event alone hold for the events of `block`. `keep` is the mask
    /// of rows to process.
    pub fn select(&self, block: &RowBlock<'_>, keep: u64, space: &mut CandidateRules) {
        space.hits.clear();
        let keep = keep & block.all();
        if self.rules.is_empty() || keep == 0 {
            return;
        }
        if block.len < BLOCK_ROWS_MIN {
            return for_each(keep, |i| self.select_row(Row::Batch(block.columns, block.start + i), i, space));
        }
        space.masks.resize(self.rules.len(), 0);
        space.cache.clear();
        space.cache.resize(self.conjuncts.len(), None);
        space.touched.clear();
        self.look_up(block, keep, space);
        for rank in &self.always {
            self.compute(*rank, keep, block, keep, space);
        }
        for i in 0..space.touched.len() {
            let rank = space.touched[i];
            let mask = std::mem::take(&mut space.masks[rank as usize]);
            self.compute(rank, mask, block, keep, space);
        }
        if self.rules.len() > 1 {
            space.hits.sort_unstable();
        }
    }

    fn look_up(&self, block: &RowBlock<'_>, keep: u64, space: &mut CandidateRules) {
        for index in &self.texts {
            let ColumnData::Str(array) = block.columns.columns[index.column].data else { continue };
            for_each(keep & block.present(index.column), |i| {
                if let Some(ranks) = index.ranks.get(array.value(block.start + i)) {
                    mark_touched(ranks, i, space);
                }
            });
        }
        for index in &self.integers {
            let present = keep & block.present(index.column);
            let mut find = |i: usize, value: i64| {
                if let Some(ranks) = index.ranks.get(&value) {
                    mark_touched(ranks, i, space);
                }
            };
            match block.columns.columns[index.column].data {
                ColumnData::I32(v) => for_each(present, |i| find(i, v[block.start + i].into())),
                ColumnData::I64(v) | ColumnData::Time(v) => {
                    for_each(present, |i| find(i, v[block.start + i]))
                }
                _ => {}
            }
        }
        for index in &self.ranges {
            let present = keep & block.present(index.column);
            let mut find = |i: usize, key: Option<i64>| {
                if let Some(ranks) = key.and_then(|k| index.find(k)) {
                    mark_touched(ranks, i, space);
                }
            };
            match block.columns.columns[index.column].data {
                ColumnData::I32(v) => for_each(present, |i| find(i, Some(v[block.start + i].into()))),
                ColumnData::I64(v) | ColumnData::Time(v) => {
                    for_each(present, |i| find(i, Some(v[block.start + i])))
                }
                ColumnData::F32(v) => {
                    for_each(present, |i| find(i, range::float_key(v[block.start + i].into())))
                }
                ColumnData::F64(v) => for_each(present, |i| find(i, range::float_key(v[block.start + i]))),
                _ => {}
            }
        }
    }

    /// Computes the remaining conditions of a rule for the rows `active`, and adds the matches.
    #[inline]
    fn compute(
        &self,
        rank: u32,
        mut active: u64,
        block: &RowBlock<'_>,
        keep: u64,
        space: &mut CandidateRules,
    ) {
        for id in &self.checks[rank as usize] {
            let conjunct = &self.conjuncts[*id as usize];
            let answer = if conjunct.shared {
                *space.cache[*id as usize].get_or_insert_with(|| conjunct.op.eval(block, keep))
            } else {
                conjunct.op.eval(block, active)
            };
            active &= answer.true_rows;
            if active == 0 {
                return;
            }
        }
        for_each(active, |i| space.hits.push((i as u64) << 32 | u64::from(rank)));
    }

    /// Adds the matching rules of one event; its hits get the row `at`.
    pub fn select_row(&self, row: Row<'_>, at: usize, space: &mut CandidateRules) {
        space.touched.clear();
        space.touched.extend_from_slice(&self.always);
        for index in &self.texts {
            if let RuleValue::Str(s) = row.value(index.column) {
                space.touched.extend(index.ranks.get(s.as_ref()).into_iter().flatten());
            }
        }
        for index in &self.integers {
            if let RuleValue::Int(n) | RuleValue::Time(n) = row.value(index.column) {
                space.touched.extend(index.ranks.get(&n).into_iter().flatten());
            }
        }
        for index in &self.ranges {
            let key = match row.value(index.column) {
                RuleValue::Int(n) | RuleValue::Time(n) => Some(n),
                RuleValue::Float(x) => range::float_key(x),
                _ => None,
            };
            space.touched.extend(key.and_then(|k| index.find(k)).into_iter().flatten());
        }
        space.touched.sort_unstable();
        let frame = Bindings::new(row);
        for rank in &space.touched {
            let holds = |id: &u32| truth(&self.conjuncts[*id as usize].expr, &frame) == Some(true);
            if self.checks[*rank as usize].iter().all(holds) {
                space.hits.push((at as u64) << 32 | u64::from(*rank));
            }
        }
    }

    /// Selects for a whole batch, for tests and explanations: `(row, rank)` in order.
    pub fn select_all(&self, columns: &Columns<'_>) -> Vec<(usize, u32)> {
        let mut space = CandidateRules::default();
        let mut all = Vec::new();
        for start in (0..columns.rows).step_by(crate::expr::block::ROWS) {
            let len = (columns.rows - start).min(crate::expr::block::ROWS);
            self.select(&RowBlock { columns, start, len }, u64::MAX, &mut space);
            all.extend(space.hits.iter().map(|h| (start + (h >> 32) as usize, *h as u32)));
        }
        all
    }
}

#[inline]
fn mark_touched(ranks: &[u32], row: usize, space: &mut CandidateRules) {
    for rank in ranks {
        let mask = &mut space.masks[*rank as usize];
        if *mask == 0 {
            space.touched.push(*rank);
        }
        *mask |= 1 << row;
    }
}

fn slot<K>(indexes: &mut Vec<EqualIndex<K>>, column: usize) -> &mut HashMap<K, Vec<u32>> {
    let at = indexes.iter().position(|i| i.column == column).unwrap_or_else(|| {
        indexes.push(EqualIndex { column, ranks: HashMap::new() });
        indexes.len() - 1
    });
    &mut indexes[at].ranks
}

fn push_once(ranks: &mut Vec<u32>, rank: u32) {
    if ranks.last() != Some(&rank) {
        ranks.push(rank);
    }
}

/// Returns the column and the constants of `field == constant` and `field in [constants]`.
fn equal_constants(expr: &Expr) -> Option<(usize, Vec<Const>)> {
    let constant = |x: &Expr, ty: ExprType| match (x.as_const()?, ty) {
        (c @ Const::Str(_), ExprType::Str) => Some(c.clone()),
        (c, ExprType::Int | ExprType::Time) => integer_const(x, ty).map(|_| c.clone()),
        _ => None,
    };
    match &expr.kind {
        ExprNode::Compare(CompareOp::Eq, a, b) => {
            let (field, value) = if plain_column(a).is_some() { (a, b) } else { (b, a) };
            Some((plain_column(field)?, vec![constant(value, field.ty)?]))
        }
        ExprNode::In(x, list) => {
            let column = plain_column(x)?;
            let constants: Option<Vec<Const>> = list.iter().map(|item| constant(item, x.ty)).collect();
            Some((column, constants?))
        }
        _ => None,
    }
}

/// Chooses an index for each rule: on the field that most rules compare with constants, else on the one that
/// most rules bound.
fn choose_access(plans: &[&RulePlan]) -> Vec<Option<IndexAccess>> {
    let equal: Vec<Vec<usize>> = plans
        .iter()
        .map(|p| p.checks.iter().filter_map(|c| equal_constants(&c.expr)).map(|(c, _)| c).collect())
        .collect();
    let bounded: Vec<Vec<usize>> = plans.iter().map(|p| Interval::columns(p)).collect();
    let equal_counts = count(&equal);
    let mut anchors: Vec<Option<IndexAccess>> = equal
        .iter()
        .map(|columns| most_used(columns, &equal_counts, EQUAL_RULES_MIN).map(IndexAccess::Equal))
        .collect();
    let left: Vec<Vec<usize>> =
        bounded.into_iter().zip(&anchors).map(|(b, a)| if a.is_some() { vec![] } else { b }).collect();
    let range_counts = count(&left);
    for (anchor, columns) in anchors.iter_mut().zip(&left) {
        if anchor.is_none() {
            *anchor = most_used(columns, &range_counts, RANGE_RULES_MIN).map(IndexAccess::Range);
        }
    }
    anchors
}

fn count(columns: &[Vec<usize>]) -> HashMap<usize, usize> {
    let mut counts = HashMap::new();
    for list in columns {
        let mut list = list.clone();
        list.sort_unstable();
        list.dedup();
        list.into_iter().for_each(|c| *counts.entry(c).or_default() += 1);
    }
    counts
}

fn most_used(columns: &[usize], counts: &HashMap<usize, usize>, least: usize) -> Option<usize> {
    let used = |c: &usize| counts.get(c).copied().unwrap_or(0);
    // the smaller column wins a tie, so that the choice does not depend on hash order
    columns.iter().copied().filter(|c| used(c) >= least).max_by_key(|c| (used(c), std::cmp::Reverse(*c)))
}

/// Returns the conditions that the index does not decide.
fn remaining_conditions(plan: &RulePlan, anchor: Option<IndexAccess>) -> Vec<&Expr> {
    let mut decided_equal = false;
    let decided = |expr: &Expr, decided_equal: &mut bool| match anchor {
        None => false,
        Some(IndexAccess::Equal(column)) => {
            // only the first: a second one on this field may compare with another value
            let this = !*decided_equal && equal_constants(expr).is_some_and(|(c, _)| c == column);
            *decided_equal |= this;
            this
        }
        Some(IndexAccess::Range(column)) => range::bound(expr).is_some_and(|(c, _)| c == column),
    };
    plan.checks.iter().map(|c| &c.expr).filter(|e| !decided(e, &mut decided_equal)).collect()
}
