//! Filters: MongoDB's query operators as a pure function of a document.
//!
//! ```
//! use tidemill_docs::Filter;
//! let filter = Filter::parse(&bson::rawdoc! { "gate": { "$in": ["A1", "B4"] }, "legs.delay_min": { "$gt": 15 } }).unwrap();
//! assert!(filter.matches(&bson::rawdoc! { "gate": "B4", "legs": [{ "delay_min": 2 }, { "delay_min": 20 }] }));
//! ```

mod bits;
mod collated;
mod cost;
mod failure;
mod parse;
mod parse_search;
mod pattern;
mod position;
mod schema;
mod search;
mod source;

use std::sync::{Arc, OnceLock};

use bson::Bson;
use bson::raw::RawDocument;
use tidemill_types::Value;

use crate::collation::Collation;
use crate::error::{DocsError, Result};
use crate::expression::{Expression, Variables};
use crate::geo::{GeoTest, NearQuery};
use crate::scripts::CompiledScript;
use crate::text::TextQuery;
use crate::values::key::rank;
use crate::values::order::{compare, equal};
use crate::values::path::Path;
use crate::values::path_values::{LeafArray, any_value};
use crate::values::raw::{OwnedRawValue, RawValue, elements, tag};
use bits::BitTest;
pub(crate) use collated::CollatedTest;
use cost::FilterCost;
pub(crate) use parse::{compiled_regex, conditions_on_value, is_operators};
pub(crate) use pattern::{Groups, Pattern};
use schema::Schema;
use source::FilterSource;

/// A parsed filter.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) node: FilterNode,
    cost: FilterCost,
    /// Why it could not be told of some document whether it matches.
    failure: Arc<OnceLock<DocsError>>,
    source: Option<Arc<FilterSource>>,
}

#[derive(Debug, Clone)]
pub(crate) enum FilterNode {
    All(Vec<FilterNode>),
    Any(Vec<FilterNode>),
    Not(Box<FilterNode>),
    Field(Path, ValueTest),
    /// `$expr`
    Expression(Box<ExpressionTest>),
    /// `$jsonSchema`
    Schema(Arc<Schema>),
    /// `$text`
    Text(Arc<TextQuery>),
    /// `$where`
    Where(CompiledScript),
}

/// An expression that must be true.
#[derive(Debug, Clone)]
pub(crate) struct ExpressionTest {
    expression: Expression,
}

/// A predicate on the values that a path reaches; it holds if it holds for one of them.
#[derive(Debug, Clone)]
pub(crate) enum ValueTest {
    Compare(Comparison, OwnedRawValue),
    In(Vec<OwnedRawValue>, Vec<RegexPattern>),
    /// A comparison with strings in the order of a collation.
    Collated(Box<CollatedTest>),
    Exists,
    Bits(BitTest),
    Type(Vec<u8>),
    Pattern(RegexPattern),
    Size(i64),
    Mod {
        divisor: i64,
        remainder: i64,
    },
    /// `$geoWithin`, `$geoIntersects`
    Geo(Arc<GeoTest>),
    /// `$near`, `$nearSphere`
    Near(Arc<NearQuery>),
    /// An array with a document that matches.
    ElemMatchDocument(Box<FilterNode>),
    /// An array with an element that matches as the pseudo field `""`.
    ElemMatchValue(Box<FilterNode>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Eq,
    Gt,
    Gte,
    Lt,
    Lte,
}

/// A compiled regular expression with its source.
#[derive(Debug, Clone)]
pub(crate) struct RegexPattern {
    pub regex: Pattern,
    /// The source as a BSON value; matches equal regular expressions stored in documents.
    pub source: OwnedRawValue,
}

impl Filter {
    /// Returns the filter that every document matches.
    pub fn all() -> Self {
        Self::of(FilterNode::All(Vec::new()))
    }

    pub(crate) fn of(node: FilterNode) -> Self {
        Self { cost: FilterCost::of(&node), node, failure: Arc::default(), source: None }
    }

    /// Parses a MongoDB filter document.
    ///
    /// Errors: `BadValue` and `FailedToParse` with the operator, what it expects and what was found.
    pub fn parse(filter: &RawDocument) -> Result<Self> {
        Ok(Self::of(parse::document(filter.as_bytes())?))
    }

    /// Parses a filter whose expressions may use variables.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_with(filter: &RawDocument, variables: &Variables) -> Result<Self> {
        Ok(Self::of(parse::document_with(filter.as_bytes(), variables)?))
    }

    /// Parses a filter that compares strings by a collation.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_by(filter: &RawDocument, collation: Option<&Collation>) -> Result<Self> {
        match collation {
            None => Self::parse(filter),
            Some(_) => {
                Self::parse_with(filter, &Variables { collation: collation.cloned(), ..Variables::default() })
            }
        }
    }

    /// Returns the error for which it could not be told of one of the documents whether it [matches](Self::matches).
    ///
    /// Errors: the first one.
    pub fn check(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Returns the filter `path == value`. Errors: a value that BSON cannot represent.
    pub fn eq(path: &str, value: impl Into<Bson>) -> Result<Self> {
        let value = OwnedRawValue::from_bson(&value.into()).map_err(DocsError::bad_value)?;
        Ok(Self::of(FilterNode::Field(Path::new(path), ValueTest::Compare(Comparison::Eq, value))))
    }

    /// Returns the filter `path == value`; a missing value matches like null.
    pub fn eq_value(path: &str, value: &Value<'_>) -> Self {
        let value = OwnedRawValue::from_value(value);
        Self::of(FilterNode::Field(Path::new(path), ValueTest::Compare(Comparison::Eq, value)))
    }

    /// Returns the filter `path == value` by a collation; a missing value matches like null.
    pub fn equal_by(path: &str, value: &Value<'_>, collation: Option<&Collation>) -> Self {
        let value = OwnedRawValue::from_value(value);
        let test = match collation {
            Some(collation) => ValueTest::Collated(Box::new(CollatedTest::new(
                Comparison::Eq,
                vec![value],
                Vec::new(),
                collation,
            ))),
            None => ValueTest::Compare(Comparison::Eq, value),
        };
        Self::of(FilterNode::Field(Path::new(path), test))
    }

    /// Returns whether the document matches. After a document for which that cannot be decided, no document
    /// does, and [`Self::check`] returns the error.
    pub fn matches(&self, doc: &RawDocument) -> bool {
        self.matches_bytes(doc.as_bytes())
    }

    pub(crate) fn matches_bytes(&self, doc: &[u8]) -> bool {
        if !self.cost.is_fallible() && !self.cost.is_heavy() {
            return self.node.matches(doc);
        }
        // the query fails with the first error; an expression that takes seconds to fail is not tried on each document
        if self.failure.get().is_some() {
            return false;
        }
        self.test(doc).unwrap_or_else(|error| {
            self.failure.get_or_init(|| error);
            false
        })
    }

    /// Returns whether the document matches, for a filter that outlives a query.
    ///
    /// Errors: this cannot be told, as an expression has no value or work has to end.
    pub(crate) fn test(&self, doc: &[u8]) -> Result<bool> {
        self.cost.charge()?;
        match self.cost.is_fallible() {
            true => failure::catch(|| self.node.matches(doc)),
            false => Ok(self.node.matches(doc)),
        }
    }

    /// Returns what a test of a document costs besides what the test charges itself.
    pub(crate) fn cost(&self) -> FilterCost {
        self.cost
    }

    /// Returns whether every document matches because the filter has no conditions.
    pub fn is_all(&self) -> bool {
        matches!(&self.node, FilterNode::All(nodes) if nodes.is_empty())
    }

    /// Returns the paths that must equal one value, found through `$and` but not through `$or`.
    pub(crate) fn equalities(&self) -> Vec<(&Path, RawValue<'_>)> {
        let mut found = Vec::new();
        self.node.collect_equalities(&mut found);
        found
    }
}

impl FilterNode {
    pub fn matches(&self, doc: &[u8]) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|n| n.matches(doc)),
            Self::Any(nodes) => nodes.iter().any(|n| n.matches(doc)),
            Self::Not(node) => !node.matches(doc),
            Self::Field(path, test) => any_value(doc, path, test.leaf(), &mut |v| test.holds(v)),
            Self::Expression(test) => test.holds(doc),
            Self::Where(script) => failure::note(|| {
                let doc = RawValue { tag: tag::DOCUMENT, bytes: doc }.to_bson();
                Ok(script.call(vec![doc])? == Bson::Boolean(true))
            }),
            Self::Text(query) => failure::note(|| query.matches(doc)),
            Self::Schema(schema) => schema.fits(RawValue { tag: tag::DOCUMENT, bytes: doc }),
        }
    }

    fn collect_equalities<'n>(&'n self, found: &mut Vec<(&'n Path, RawValue<'n>)>) {
        match self {
            Self::All(nodes) => nodes.iter().for_each(|n| n.collect_equalities(found)),
            Self::Field(path, ValueTest::Compare(Comparison::Eq, v)) => found.push((path, v.as_raw())),
            Self::Field(path, ValueTest::In(values, patterns)) if patterns.is_empty() => {
                if let [one] = values.as_slice() {
                    found.push((path, one.as_raw()));
                }
            }
            Self::Field(path, ValueTest::Collated(test)) => {
                found.extend(test.equal_to().map(|one| (path, one)))
            }
            _ => {}
        }
    }
}

impl ExpressionTest {
    fn holds(&self, doc: &[u8]) -> bool {
        failure::note(|| {
            let doc = RawDocument::from_bytes(doc).map_err(|e| DocsError::bad_value(e.to_string()))?;
            Ok(Expression::is_true(&self.expression.eval(doc)?))
        })
    }
}

impl ValueTest {
    fn leaf(&self) -> LeafArray {
        match self {
            Self::Size(_)
            | Self::ElemMatchDocument(_)
            | Self::ElemMatchValue(_)
            | Self::Exists
            | Self::Geo(_)
            | Self::Near(_) => LeafArray::Whole,
            _ => LeafArray::Expand,
        }
    }

    fn holds(&self, value: Option<RawValue<'_>>) -> bool {
        let Some(value) = value else {
            return self.holds_for_missing();
        };
        match self {
            Self::Compare(op, operand) => op.holds(value, operand.as_raw()),
            Self::In(values, patterns) => {
                values.iter().any(|v| Comparison::Eq.holds(value, v.as_raw()))
                    || patterns.iter().any(|p| p.holds(value))
            }
            Self::Collated(test) => test.holds(value),
            Self::Exists => true,
            Self::Bits(bits) => bits.holds(value),
            Self::Type(tags) => tags.contains(&value.tag),
            Self::Pattern(pattern) => pattern.holds(value),
            Self::Size(n) => {
                value.tag == tag::ARRAY && i64::try_from(elements(value.bytes).count()) == Ok(*n)
            }
            Self::Geo(test) => failure::note(|| test.holds(value)),
            Self::Near(near) => failure::note(|| near.holds(value)),
            Self::Mod { divisor, remainder } => {
                truncated(value).is_some_and(|n| n.wrapping_rem(*divisor) == *remainder)
            }
            Self::ElemMatchDocument(node) => {
                value.tag == tag::ARRAY
                    && elements(value.bytes).any(|e| {
                        matches!(e.value.tag, tag::DOCUMENT | tag::ARRAY) && node.matches(e.value.bytes)
                    })
            }
            Self::ElemMatchValue(node) => {
                value.tag == tag::ARRAY
                    && elements(value.bytes).any(|e| node.matches(&e.value.in_document("")))
            }
        }
    }

    /// Returns whether the test holds for a missing value, which matches like null.
    fn holds_for_missing(&self) -> bool {
        match self {
            Self::Compare(op, operand) => operand.tag == tag::NULL && op.includes_equal(),
            Self::In(values, _) => values.iter().any(|v| v.tag == tag::NULL),
            Self::Collated(test) => test.holds_for_missing(),
            _ => false,
        }
    }
}

/// Truncates a number to an integer, as `$mod` does.
fn truncated(value: RawValue<'_>) -> Option<i64> {
    match value.tag {
        tag::DOUBLE => {
            let x = value.f64().trunc();
            (x.abs() < 9.2e18).then_some(x as i64)
        }
        _ => value.as_integer(),
    }
}

impl Comparison {
    fn includes_equal(self) -> bool {
        matches!(self, Self::Eq | Self::Gte | Self::Lte)
    }

    /// Evaluates as [`Self::holds`] does; a missing value matches like null.
    pub fn finds(self, value: Option<RawValue<'_>>, operand: RawValue<'_>) -> bool {
        value.map_or(operand.tag == tag::NULL && self.includes_equal(), |v| self.holds(v, operand))
    }

    /// Returns whether the comparison holds. Values of different types do not compare, except null with
    /// undefined, and every type with MinKey and MaxKey.
    fn holds(self, value: RawValue<'_>, operand: RawValue<'_>) -> bool {
        if rank(value.tag) != rank(operand.tag) {
            return match operand.tag {
                tag::NULL => value.tag == tag::UNDEFINED && self.includes_equal(),
                tag::UNDEFINED => value.tag == tag::NULL && self.includes_equal(),
                tag::MIN_KEY => matches!(self, Self::Gt | Self::Gte),
                tag::MAX_KEY => matches!(self, Self::Lt | Self::Lte),
                _ => false,
            };
        }
        if self == Self::Eq {
            return equal(value, operand);
        }
        if is_nan(value) || is_nan(operand) {
            return self.includes_equal() && is_nan(value) && is_nan(operand);
        }
        self.accepts(compare(value, operand))
    }

    /// Returns whether the comparison holds for a value with this order to the operand.
    fn accepts(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Gt => order.is_gt(),
            Self::Gte => order.is_ge(),
            Self::Lt => order.is_lt(),
            Self::Lte => order.is_le(),
        }
    }
}

/// Returns whether a value is a number that is not a number.
pub(crate) fn is_nan(value: RawValue<'_>) -> bool {
    match value.tag {
        tag::DOUBLE => value.f64().is_nan(),
        // NaN has all of the five bits after the sign set
        tag::DECIMAL => value.bytes.last().is_some_and(|b| b & 0x7C == 0x7C),
        _ => false,
    }
}

impl RegexPattern {
    fn holds(&self, value: RawValue<'_>) -> bool {
        match value.tag {
            tag::STRING | tag::SYMBOL => {
                value.text().is_some_and(|text| failure::note(|| self.regex.is_match(text)))
            }
            tag::REGEX => equal(value, self.source.as_raw()),
            _ => false,
        }
    }
}
