//! `$setWindowFields`: fields computed from the documents around each.

use std::collections::HashMap;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_docs::{
    Collation, DocBytes, Expression, HeldMemory, Key, SortOrder, Variables, encoded, set_path,
};
use tidemill_types::budget;

use super::flow::{Flow, Receiver};
use super::group::GroupStage;
use super::{known, option};
use crate::error::{Code, CommandError, Result};
use crate::fields::whole_number;

const NAME: &str = "$setWindowFields";
/// Bytes of a partition besides those of its key.
const PARTITION_BYTES: usize = 64 + size_of::<Key>();
/// Values of a range that are compared for one step of the budget.
const VALUES_PER_STEP: usize = 64;

/// `$setWindowFields`
pub(in crate::commands) struct SetWindowFields {
    partition: Option<Expression>,
    order: Option<SortOrder>,
    collation: Option<Collation>,
    /// The only field of the order, whose values ranges compare.
    range_field: Option<String>,
    outputs: Vec<(String, Output)>,
}

enum Output {
    Rank,
    DenseRank,
    DocumentNumber,
    Shift { output: Expression, by: i64, default: Option<Bson> },
    Accumulated(GroupStage, WindowExtent),
}

/// The documents that a window has.
enum WindowExtent {
    All,
    /// Positions relative to the document; `None` for the end of the partition.
    Documents(Option<i64>, Option<i64>),
    /// Values of the order relative to that of the document.
    Range(Option<f64>, Option<f64>),
}

fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(Code::FailedToParse, message.into()))
}

impl SetWindowFields {
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<Self> {
        known(NAME, options, &["partitionBy", "sortBy", "output"])?;
        let partition =
            options.get("partitionBy")?.map(|by| Expression::parse_with(by, variables)).transpose()?;
        let (mut order, mut range_field) = (None, None);
        if let Some(by) = options.get("sortBy")? {
            let RawBsonRef::Document(by) = by else {
                return fail("`sortBy` of $setWindowFields must be an object");
            };
            order = Some(super::sort_order(by, variables)?);
            let mut fields = by.into_iter();
            if let (Some(Ok((name, _))), None) = (fields.next(), fields.next()) {
                range_field = Some(name.as_str().to_owned());
            }
        }
        let RawBsonRef::Document(fields) = option(NAME, options, "output")? else {
            return fail("`output` of $setWindowFields must be an object");
        };
        let mut outputs = Vec::new();
        for field in fields {
            let (path, value) = field?;
            let RawBsonRef::Document(function) = value else {
                return fail(format!("the field '{}' of $setWindowFields must be an object", path.as_str()));
            };
            let output = Output::parse(function, order.is_some(), range_field.is_some(), variables)?;
            outputs.push((path.as_str().to_owned(), output));
        }
        let collation = variables.collation.clone();
        Ok(Self { partition, order, collation, range_field, outputs })
    }

    /// Passes on the documents with the fields, partition by partition.
    pub(super) fn apply(&self, documents: Vec<DocBytes>, next: &mut dyn Receiver) -> Result<()> {
        let mut held = HeldMemory::default();
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut partitions: Vec<Vec<DocBytes>> = Vec::new();
        for document in documents {
            budget::step()?;
            held.add(size_of::<DocBytes>())?;
            let value = match &self.partition {
                Some(by) => by.eval(RawDocument::from_bytes(&document)?)?.unwrap_or(Bson::Null),
                None => Bson::Null,
            };
            let key = Key::of_bson_by(&value, self.collation.as_ref())?;
            let key_bytes = PARTITION_BYTES + key.heap_bytes();
            let at = *places.entry(key).or_insert(partitions.len());
            if at == partitions.len() {
                held.add(key_bytes)?;
                partitions.push(Vec::new());
            }
            partitions[at].push(document);
        }
        for partition in partitions {
            if self.compute(partition, next)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Orders a partition. Returns its documents and, if there is an order, their keys.
    fn ordered(&self, documents: Vec<DocBytes>, held: &mut HeldMemory) -> Result<(Vec<DocBytes>, Vec<Key>)> {
        let Some(order) = &self.order else { return Ok((documents, Vec::new())) };
        let mut keyed = Vec::with_capacity(documents.len());
        for document in documents {
            budget::step()?;
            let key = order.key(&document);
            held.add(size_of::<Key>() + key.heap_bytes() + size_of::<DocBytes>())?;
            keyed.push((key, document));
        }
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (keys, documents) = keyed.into_iter().unzip();
        Ok((documents, keys))
    }

    fn compute(&self, partition: Vec<DocBytes>, next: &mut dyn Receiver) -> Result<Flow> {
        let mut held = HeldMemory::default();
        let (partition, keys) = self.ordered(partition, &mut held)?;
        let partition = partition.as_slice();
        let ranges = match &self.range_field {
            Some(field) => {
                partition.iter().map(|document| range_value(document, field)).collect::<Result<_>>()?
            }
            None => Vec::new(),
        };
        let (mut rank, mut dense) = (0, 0);
        for (at, document) in partition.iter().enumerate() {
            // a range looks at the values of the whole partition
            budget::steps(1 + (ranges.len() / VALUES_PER_STEP) as u64)?;
            if at == 0 || keys.get(at) != keys.get(at - 1) {
                rank = at + 1;
                dense += 1;
            }
            let mut target: Document = RawDocument::from_bytes(document)?.try_into()?;
            for (path, output) in &self.outputs {
                let value = match output {
                    Output::Rank => Bson::Int32(rank as i32),
                    Output::DenseRank => Bson::Int32(dense),
                    Output::DocumentNumber => Bson::Int32(at as i32 + 1),
                    Output::Shift { output, by, default } => {
                        let other = usize::try_from(at as i64 + by).ok().and_then(|at| partition.get(at));
                        match other {
                            Some(other) => {
                                output.eval(RawDocument::from_bytes(other)?)?.unwrap_or(Bson::Null)
                            }
                            None => default.clone().unwrap_or(Bson::Null),
                        }
                    }
                    Output::Accumulated(group, window) => {
                        let (from, to) = window.bounds(at, partition.len(), &ranges);
                        let documents = partition.get(from..to.max(from)).unwrap_or_default();
                        let mut result = RawDocumentBuf::new();
                        group.append_results(documents, &mut result)?;
                        let value = result.get("v")?.unwrap_or(RawBsonRef::Null);
                        Bson::try_from(value)?
                    }
                };
                set_path(&mut target, path, Some(value));
            }
            if next.push(encoded(&target)?)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }
}

impl Output {
    fn parse(function: &RawDocument, sorted: bool, one_field: bool, variables: &Variables) -> Result<Self> {
        let mut window = WindowExtent::All;
        let mut operator = None;
        for field in function {
            let (name, value) = field?;
            match name.as_str() {
                "window" => window = WindowExtent::parse(value, sorted, one_field)?,
                name if operator.is_none() => operator = Some((name, value)),
                name => return fail(format!("unexpected `{name}` in a field of $setWindowFields")),
            }
        }
        let Some((name, value)) = operator else {
            return fail("a field of $setWindowFields needs a function");
        };
        if matches!(name, "$rank" | "$denseRank" | "$documentNumber" | "$shift") && !sorted {
            return fail(format!("{name} needs a `sortBy`"));
        }
        Ok(match name {
            "$rank" => Self::Rank,
            "$denseRank" => Self::DenseRank,
            "$documentNumber" => Self::DocumentNumber,
            "$shift" => {
                let RawBsonRef::Document(options) = value else { return fail("$shift expects an object") };
                known("$shift", options, &["output", "by", "default"])?;
                let by = whole_number(option("$shift", options, "by")?);
                Self::Shift {
                    output: Expression::parse_with(option("$shift", options, "output")?, variables)?,
                    by: by
                        .filter(|by| by.unsigned_abs() < 1 << 40)
                        .map_or_else(|| fail("`by` of $shift must be a whole number"), Ok)?,
                    default: options.get("default")?.map(Bson::try_from).transpose()?,
                }
            }
            "$expMovingAvg" | "$derivative" | "$integral" | "$covariancePop" | "$covarianceSamp"
            | "$locf" | "$linearFill" => {
                return Err(CommandError::not_supported(format!("the window function `{name}`")));
            }
            name => {
                let mut group = RawDocumentBuf::new();
                group.append(bson::cstr!("_id"), RawBson::Null);
                let mut accumulator = RawDocumentBuf::new();
                accumulator.append(bson::raw::CString::try_from(name.to_owned())?, value);
                group.append(bson::cstr!("v"), accumulator);
                Self::Accumulated(GroupStage::parse(&group, variables)?, window)
            }
        })
    }
}

impl WindowExtent {
    fn parse(window: RawBsonRef<'_>, sorted: bool, one_field: bool) -> Result<Self> {
        let RawBsonRef::Document(window) = window else { return fail("`window` must be an object") };
        known("window", window, &["documents", "range", "unit"])?;
        let bounds = |bounds: RawBsonRef<'_>| -> Result<[Option<f64>; 2]> {
            let RawBsonRef::Array(bounds) = bounds else {
                return fail("a window must be an array of two bounds");
            };
            let mut parsed = Vec::new();
            for bound in bounds {
                parsed.push(match bound? {
                    RawBsonRef::String("unbounded") => None,
                    RawBsonRef::String("current") => Some(0.0),
                    RawBsonRef::Int32(n) => Some(f64::from(n)),
                    RawBsonRef::Int64(n) => Some(n as f64),
                    RawBsonRef::Double(n) => Some(n),
                    _ => return fail("a bound of a window must be `unbounded`, `current` or a number"),
                });
            }
            parsed.try_into().map_or_else(|_| fail("a window needs two bounds"), Ok)
        };
        match (window.get("documents")?, window.get("range")?) {
            (Some(documents), None) => {
                let [from, to] = bounds(documents)?;
                if !sorted && (from.is_some() || to.is_some()) {
                    return fail("a window of documents needs a `sortBy`");
                }
                let whole = |bound: Option<f64>| bound.map(|bound| bound as i64);
                Ok(Self::Documents(whole(from), whole(to)))
            }
            (None, Some(range)) => {
                if !one_field {
                    return fail("a window of a range needs a `sortBy` with exactly one field");
                }
                let unit = match window.get("unit")? {
                    None => 1.0,
                    Some(RawBsonRef::String("week")) => 7.0 * 86_400_000.0,
                    Some(RawBsonRef::String("day")) => 86_400_000.0,
                    Some(RawBsonRef::String("hour")) => 3_600_000.0,
                    Some(RawBsonRef::String("minute")) => 60_000.0,
                    Some(RawBsonRef::String("second")) => 1000.0,
                    Some(RawBsonRef::String("millisecond")) => 1.0,
                    Some(_) => {
                        return Err(CommandError::not_supported("a window in months, quarters or years"));
                    }
                };
                let [from, to] = bounds(range)?;
                Ok(Self::Range(from.map(|n| n * unit), to.map(|n| n * unit)))
            }
            _ => fail("a window needs either `documents` or `range`"),
        }
    }

    /// Returns the positions of the documents of the window of one document.
    fn bounds(&self, at: usize, count: usize, values: &[f64]) -> (usize, usize) {
        let place = |bound: i64| usize::try_from((at as i64).saturating_add(bound)).unwrap_or(0).min(count);
        match self {
            Self::All => (0, count),
            Self::Documents(from, to) => {
                let end = to.map_or(count, |to| match (at as i64).saturating_add(to).saturating_add(1) {
                    end if end <= 0 => 0,
                    _ => place(to.saturating_add(1)),
                });
                (from.map_or(0, place), end)
            }
            Self::Range(from, to) => {
                let here = values.get(at).copied().unwrap_or(0.0);
                let ascending = values.first() <= values.last();
                let inside = |value: &f64| {
                    let distance = if ascending { value - here } else { here - value };
                    from.is_none_or(|from| distance >= from) && to.is_none_or(|to| distance <= to)
                };
                let start = values.iter().position(inside).unwrap_or(0);
                let end = values.iter().rposition(inside).map_or(start, |end| end + 1);
                (start, end)
            }
        }
    }
}

/// Returns the number by which ranges compare a document.
fn range_value(document: &DocBytes, field: &str) -> Result<f64> {
    let value = Expression::parse(RawBsonRef::String(&format!("${field}")))?;
    Ok(match value.eval(RawDocument::from_bytes(document)?)? {
        Some(Bson::Int32(n)) => n.into(),
        Some(Bson::Int64(n)) => n as f64,
        Some(Bson::Double(n)) => n,
        Some(Bson::DateTime(at)) => at.timestamp_millis() as f64,
        _ => f64::NAN,
    })
}
