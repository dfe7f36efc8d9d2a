//! Stages that complete sequences: `$densify` adds documents, `$fill` adds fields.

use std::collections::HashMap;

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, DateTime, Document};
use tidemill_docs::{
    Collation, DocBytes, Expression, HeldMemory, Key, SortOrder, Variables, encoded, set_path, value_bytes,
};
use tidemill_types::budget;

use super::flow::{Flow, Receiver};
use super::{known, option, text};
use crate::error::{Code, CommandError, Result};

/// Bytes of a partition besides those of its key.
const PARTITION_BYTES: usize = 96;
/// Values that are looked at for one step of the budget.
const VALUES_PER_STEP: usize = 64;
/// Documents that one `$densify` may add.
const ADDED_MAX: usize = 500_000;

fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(Code::FailedToParse, message.into()))
}

/// Returns the value at a path.
fn value_of(document: &DocBytes, path: &str) -> Result<Option<Bson>> {
    Ok(Expression::parse(RawBsonRef::String(&format!("${path}")))?
        .eval(RawDocument::from_bytes(document)?)?)
}

/// Returns a number, or the milliseconds of a date.
fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        Bson::DateTime(at) => Some(at.timestamp_millis() as f64),
        _ => None,
    }
}

/// Groups documents by the values at some paths, in the order in which the groups begin.
fn partitions(
    documents: Vec<DocBytes>,
    paths: &[String],
    by: Option<&Collation>,
    held: &mut HeldMemory,
) -> Result<Vec<Vec<DocBytes>>> {
    let mut places: HashMap<Vec<Key>, usize> = HashMap::new();
    let mut partitions: Vec<Vec<DocBytes>> = Vec::new();
    for document in documents {
        budget::step()?;
        held.add(size_of::<DocBytes>())?;
        let (mut key, mut key_bytes) = (Vec::new(), PARTITION_BYTES);
        for path in paths {
            let part = Key::of_bson_by(&value_of(&document, path)?.unwrap_or(Bson::Null), by)?;
            key_bytes += size_of::<Key>() + part.heap_bytes();
            key.push(part);
        }
        let at = *places.entry(key).or_insert(partitions.len());
        if at == partitions.len() {
            held.add(key_bytes)?;
            partitions.push(Vec::new());
        }
        partitions[at].push(document);
    }
    Ok(partitions)
}

fn paths(stage: &str, options: &RawDocument, name: &str) -> Result<Vec<String>> {
    match options.get(name)? {
        None => Ok(Vec::new()),
        Some(RawBsonRef::Array(paths)) => {
            paths.into_iter().map(|path| Ok(path?.as_str().unwrap_or_default().to_owned())).collect()
        }
        Some(_) => fail(format!("`{name}` of {stage} must be an array of paths")),
    }
}

/// `$densify`
pub(in crate::commands) struct Densify {
    field: String,
    partition_by: Vec<String>,
    step: f64,
    dates: bool,
    bounds: Bounds,
}

enum Bounds {
    /// From the least to the largest value of all documents.
    Full,
    /// Of the documents of the partition.
    Partition,
    /// From a value up to another one, which is not included.
    Between(f64, f64),
}

impl Densify {
    pub fn parse(options: &RawDocument) -> Result<Self> {
        const NAME: &str = "$densify";
        known(NAME, options, &["field", "partitionByFields", "range"])?;
        let RawBsonRef::Document(range) = option(NAME, options, "range")? else {
            return fail("`range` of $densify must be an object");
        };
        known("range", range, &["step", "unit", "bounds"])?;
        let unit = match range.get("unit")? {
            None => None,
            Some(RawBsonRef::String("week")) => Some(7.0 * 86_400_000.0),
            Some(RawBsonRef::String("day")) => Some(86_400_000.0),
            Some(RawBsonRef::String("hour")) => Some(3_600_000.0),
            Some(RawBsonRef::String("minute")) => Some(60_000.0),
            Some(RawBsonRef::String("second")) => Some(1000.0),
            Some(RawBsonRef::String("millisecond")) => Some(1.0),
            Some(_) => return Err(CommandError::not_supported("$densify by months, quarters or years")),
        };
        let step = number(&Bson::try_from(option(NAME, range, "step")?)?).filter(|step| *step > 0.0);
        let Some(step) = step else { return fail("`step` of $densify must be a number above 0") };
        let bounds = match option(NAME, range, "bounds")? {
            RawBsonRef::String("full") => Bounds::Full,
            RawBsonRef::String("partition") => Bounds::Partition,
            RawBsonRef::Array(bounds) => {
                let mut numbers = Vec::new();
                for bound in bounds {
                    let bound = Bson::try_from(bound?)?;
                    numbers.push(
                        number(&bound)
                            .map_or_else(|| fail("a bound of $densify must be a number or a date"), Ok)?,
                    );
                }
                match numbers[..] {
                    [from, to] if from <= to => Bounds::Between(from, to),
                    _ => return fail("`bounds` of $densify needs two values in ascending order"),
                }
            }
            _ => return fail("`bounds` of $densify must be full, partition or an array of two values"),
        };
        Ok(Self {
            field: text(NAME, options, "field")?.to_owned(),
            partition_by: paths(NAME, options, "partitionByFields")?,
            step: step * unit.unwrap_or(1.0),
            dates: unit.is_some(),
            bounds,
        })
    }

    /// Passes on the documents, and those that are added between them.
    pub(super) fn apply(
        &self,
        documents: Vec<DocBytes>,
        by: Option<&Collation>,
        next: &mut dyn Receiver,
    ) -> Result<()> {
        let mut values = Vec::new();
        for document in &documents {
            budget::step()?;
            values.extend(value_of(document, &self.field)?.as_ref().and_then(number));
        }
        let full = span(&values);
        let mut held = HeldMemory::default();
        held.add(size_of_val(values.as_slice()))?;
        drop(values);
        let mut added = 0;
        for partition in partitions(documents, &self.partition_by, by, &mut held)? {
            if self.complete(partition, full, &mut added, next)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn complete(
        &self,
        documents: Vec<DocBytes>,
        full: Option<(f64, f64)>,
        added: &mut usize,
        out: &mut dyn Receiver,
    ) -> Result<Flow> {
        let (mut present, mut held) = (Vec::new(), HeldMemory::default());
        for document in documents {
            budget::step()?;
            match value_of(&document, &self.field)?.as_ref().and_then(number) {
                Some(value) => {
                    held.add(size_of::<(f64, DocBytes)>())?;
                    present.push((value, document));
                }
                None if out.push(document)?.is_break() => return Ok(Flow::Break(())),
                None => {}
            }
        }
        present.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let values: Vec<f64> = present.iter().map(|(value, _)| *value).collect();
        let bounds = match self.bounds {
            Bounds::Full => full,
            Bounds::Partition => span(&values),
            Bounds::Between(from, to) => Some((from, to - self.step / 1e6)),
        };
        let Some((from, to)) = bounds else { return Ok(Flow::Continue(())) };
        let mut template = Document::new();
        if let Some((_, first)) = present.first() {
            for path in &self.partition_by {
                set_path(&mut template, path, value_of(first, path)?);
            }
        }
        let whole = !self.dates && self.step.fract() == 0.0 && from.fract() == 0.0;
        let mut rest = present.into_iter().peekable();
        let mut step = 0_u64;
        loop {
            budget::step()?;
            let next = from + step as f64 * self.step;
            let before = |value: f64| next > to || value < next;
            while let Some((_, document)) = rest.next_if(|(value, _)| before(*value)) {
                if out.push(document)?.is_break() {
                    return Ok(Flow::Break(()));
                }
            }
            if next > to {
                return Ok(Flow::Continue(()));
            }
            step += 1;
            if rest.peek().is_some_and(|(value, _)| *value == next) {
                while let Some((_, document)) = rest.next_if(|(value, _)| *value == next) {
                    if out.push(document)?.is_break() {
                        return Ok(Flow::Break(()));
                    }
                }
                continue;
            }
            *added += 1;
            if *added > ADDED_MAX {
                let message = format!("$densify adds more than {ADDED_MAX} documents: take a larger step");
                return Err(CommandError { code: 5_897_900, message });
            }
            let value = match (self.dates, whole) {
                (true, _) => Bson::DateTime(DateTime::from_millis(next as i64)),
                (false, true) => i32::try_from(next as i64).map_or(Bson::Int64(next as i64), Bson::Int32),
                (false, false) => Bson::Double(next),
            };
            let mut document = template.clone();
            set_path(&mut document, &self.field, Some(value));
            if out.push(encoded(&document)?)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
    }
}

fn span(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// `$fill`
pub(in crate::commands) struct Fill {
    partition_by: Vec<String>,
    partition_expression: Option<Expression>,
    order: Option<(SortOrder, String)>,
    collation: Option<Collation>,
    output: Vec<(String, Filling)>,
}

enum Filling {
    Value(Expression),
    /// The last value before.
    Last,
    /// Between the values before and after, by the order.
    Linear,
}

impl Fill {
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<Self> {
        const NAME: &str = "$fill";
        known(NAME, options, &["partitionBy", "partitionByFields", "sortBy", "output"])?;
        let order = match options.get("sortBy")? {
            None => None,
            Some(RawBsonRef::Document(by)) => {
                let first = by.into_iter().next().transpose()?.map_or("", |(name, _)| name.as_str());
                Some((super::sort_order(by, variables)?, first.to_owned()))
            }
            Some(_) => return fail("`sortBy` of $fill must be an object"),
        };
        let RawBsonRef::Document(fields) = option(NAME, options, "output")? else {
            return fail("`output` of $fill must be an object");
        };
        let mut output = Vec::new();
        for field in fields {
            let (path, how) = field?;
            let RawBsonRef::Document(how) = how else { return fail("a field of $fill must be an object") };
            let filling = match (how.get("value")?, how.get("method")?) {
                (Some(value), None) => Filling::Value(Expression::parse_with(value, variables)?),
                (None, Some(RawBsonRef::String("locf"))) => Filling::Last,
                (None, Some(RawBsonRef::String("linear"))) => Filling::Linear,
                _ => return fail("a field of $fill needs `value`, or the `method` locf or linear"),
            };
            if order.is_none() && !matches!(filling, Filling::Value(_)) {
                return fail("a `method` of $fill needs a `sortBy`");
            }
            output.push((path.as_str().to_owned(), filling));
        }
        Ok(Self {
            partition_by: paths(NAME, options, "partitionByFields")?,
            partition_expression: options
                .get("partitionBy")?
                .map(|by| Expression::parse_with(by, variables))
                .transpose()?,
            order,
            collation: variables.collation.clone(),
            output,
        })
    }

    /// Passes on the documents with their fields, group by group.
    pub(super) fn apply(&self, documents: Vec<DocBytes>, next: &mut dyn Receiver) -> Result<()> {
        let mut held = HeldMemory::default();
        let groups = match &self.partition_expression {
            None => partitions(documents, &self.partition_by, self.collation.as_ref(), &mut held)?,
            Some(by) => {
                let mut places: HashMap<Key, usize> = HashMap::new();
                let mut groups: Vec<Vec<DocBytes>> = Vec::new();
                for document in documents {
                    budget::step()?;
                    let value = by.eval(RawDocument::from_bytes(&document)?)?.unwrap_or(Bson::Null);
                    let key = Key::of_bson_by(&value, self.collation.as_ref())?;
                    held.add(size_of::<DocBytes>())?;
                    let key_bytes = PARTITION_BYTES + size_of::<Key>() + key.heap_bytes();
                    let at = *places.entry(key).or_insert(groups.len());
                    if at == groups.len() {
                        held.add(key_bytes)?;
                        groups.push(Vec::new());
                    }
                    groups[at].push(document);
                }
                groups
            }
        };
        for mut group in groups {
            if let Some((order, _)) = &self.order {
                group.sort_by_cached_key(|document| order.key(document));
                budget::check()?;
            }
            let (mut targets, mut held) = (Vec::new(), HeldMemory::default());
            for document in &group {
                let target = Document::try_from(RawDocument::from_bytes(document)?)?;
                let target = Bson::Document(target);
                held.add(value_bytes(&target))?;
                targets.extend(match target {
                    Bson::Document(target) => Some(target),
                    _ => None,
                });
            }
            for (path, filling) in &self.output {
                self.fill(path, filling, &group, &mut targets)?;
            }
            for target in targets {
                if next.push(encoded(&target)?)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn fill(
        &self,
        path: &str,
        filling: &Filling,
        group: &[DocBytes],
        targets: &mut [Document],
    ) -> Result<()> {
        let (mut values, mut held) = (Vec::new(), HeldMemory::default());
        for document in group {
            let value = value_of(document, path)?.filter(|value| *value != Bson::Null);
            held.add(size_of::<Option<Bson>>() + value.as_ref().map_or(0, value_bytes))?;
            values.push(value);
        }
        for at in 0..group.len() {
            // the value before may be far away
            budget::steps(1 + (group.len() / VALUES_PER_STEP) as u64)?;
            if values[at].is_some() {
                continue;
            }
            let value = match filling {
                Filling::Value(expression) => expression.eval(RawDocument::from_bytes(&group[at])?)?,
                Filling::Last => values[..at].iter().rev().find_map(Clone::clone).or(Some(Bson::Null)),
                Filling::Linear => Some(self.between(&values, group, at)?),
            };
            if let (Some(target), Some(value)) = (targets.get_mut(at), value) {
                set_path(target, path, Some(value));
            }
        }
        Ok(())
    }

    /// Returns the value between those before and after; null without one of them.
    fn between(&self, values: &[Option<Bson>], group: &[DocBytes], at: usize) -> Result<Bson> {
        let known = |at: usize| values[at].as_ref().and_then(number);
        let before = (0..at).rev().find(|at| known(*at).is_some());
        let after = (at + 1..values.len()).find(|at| known(*at).is_some());
        let (Some(before), Some(after), Some((_, field))) = (before, after, &self.order) else {
            return Ok(Bson::Null);
        };
        let place = |at: usize| -> Result<Option<f64>> {
            Ok(group.get(at).map(|d| value_of(d, field)).transpose()?.flatten().as_ref().and_then(number))
        };
        let (Some(x0), Some(x), Some(x1)) = (place(before)?, place(at)?, place(after)?) else {
            return Ok(Bson::Null);
        };
        let (Some(y0), Some(y1)) = (known(before), known(after)) else { return Ok(Bson::Null) };
        Ok(Bson::Double(y0 + (y1 - y0) * (x - x0) / (x1 - x0)))
    }
}
