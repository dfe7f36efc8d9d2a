//! The work that a filter needs for one document.

use tidemill_types::budget;

use super::{FilterNode, ValueTest};
use crate::error::Result;

/// Conditions and values up to which a filter counts no steps of its own.
const LIGHT_MAX: u64 = 32;
/// Conditions and values that count as one step.
const PER_STEP: u64 = 8;
/// Conditions for which a schema counts.
const SCHEMA_CONDITIONS: u64 = 64;

/// The work that a filter needs for one document, besides that of expressions and regular expressions, which count their own steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterCost {
    /// Conditions, and values that they compare with.
    conditions: u64,
    /// True if a test may end with an error.
    fallible: bool,
}

impl FilterCost {
    pub fn of(node: &FilterNode) -> Self {
        let mut cost = Self { conditions: 0, fallible: false };
        cost.add(node);
        cost
    }

    /// Returns whether a test may end with an error.
    pub fn is_fallible(self) -> bool {
        self.fallible
    }

    /// Returns whether tests count steps, so that the documents that are tested must not depend on the plan.
    pub fn is_heavy(self) -> bool {
        self.conditions > LIGHT_MAX
    }

    /// Counts the steps of a test. Errors: the work has to end.
    #[inline]
    pub fn charge(self) -> Result<()> {
        match self.is_heavy() {
            true => Ok(budget::steps(self.conditions / PER_STEP)?),
            false => Ok(()),
        }
    }

    fn add(&mut self, node: &FilterNode) {
        self.conditions += 1;
        match node {
            FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().for_each(|node| self.add(node)),
            FilterNode::Not(node) => self.add(node),
            FilterNode::Expression(_) | FilterNode::Text(_) | FilterNode::Where(_) => self.fallible = true,
            FilterNode::Schema(_) => self.conditions += SCHEMA_CONDITIONS,
            FilterNode::Field(_, test) => self.add_test(test),
        }
    }

    fn add_test(&mut self, test: &ValueTest) {
        match test {
            ValueTest::In(values, patterns) => {
                self.conditions += (values.len() + patterns.len()) as u64;
                self.fallible |= !patterns.is_empty();
            }
            ValueTest::Collated(test) => {
                self.conditions += (test.values.len() + test.patterns.len()) as u64;
                self.fallible |= !test.patterns.is_empty();
            }
            ValueTest::Pattern(_) | ValueTest::Geo(_) | ValueTest::Near(_) => self.fallible = true,
            ValueTest::ElemMatchDocument(node) | ValueTest::ElemMatchValue(node) => self.add(node),
            ValueTest::Compare(..)
            | ValueTest::Exists
            | ValueTest::Bits(_)
            | ValueTest::Type(_)
            | ValueTest::Size(_)
            | ValueTest::Mod { .. } => {}
        }
    }
}
