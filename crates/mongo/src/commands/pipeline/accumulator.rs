//! Accumulators: what `$group` and windows compute of several documents.

use std::collections::HashSet;

use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_docs::{
    Collation, Expression, HeldMemory, Key, SortOrder, Variables, decimal_math, value_bytes,
};

use super::script::ScriptAccumulator;
use super::{known, option};
use crate::error::{Code, CommandError, Result};

/// Values that are kept at least before those that cannot be among the wanted ones are dropped.
const KEPT_MIN: usize = 64;
/// Bytes of merged objects after which their true size is found.
const MERGED_BYTES_MIN: usize = 64 << 10;

/// Function of several values.
pub(super) enum Accumulator {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    MergeObjects,
    /// `true` for the sample standard deviation.
    StdDev(bool),
    FirstN(usize),
    LastN(usize),
    /// The least ones, or the largest.
    ExtremeN(usize, bool),
    /// The first ones by an order, whether from its end, and whether as an array.
    TopN {
        count: usize,
        order: SortOrder,
        bottom: bool,
        single: bool,
    },
    /// An expression over the array of all values.
    OfAll(Expression),
    /// Functions in JavaScript.
    Script(Box<ScriptAccumulator>),
}

/// Values that are wanted of those with a key: the first ones in ascending order, the last ones, or the first ones in descending order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    First,
    Last,
    Largest,
}

/// State of one field of one group.
#[derive(Default)]
pub(super) struct State {
    whole: i64,
    /// True if a sum of integers needs 64 bits because of the type of a summand.
    long: bool,
    float: Option<f64>,
    decimal: Option<bson::Decimal128>,
    count: i64,
    value: Option<Bson>,
    values: Vec<Bson>,
    keyed: Vec<(Key, Bson)>,
    seen: HashSet<Key>,
    /// Bytes of the values that are counted.
    counted: usize,
}

impl Accumulator {
    /// Parses an accumulator. Returns it with the expression of the values that it takes.
    pub fn parse(name: &str, operand: RawBsonRef<'_>, variables: &Variables) -> Result<(Self, Expression)> {
        fn parsed(value: RawBsonRef<'_>, variables: &Variables) -> Result<Expression> {
            Ok(Expression::parse_with(value, variables)?)
        }
        let expression = |value: RawBsonRef<'_>| parsed(value, variables);
        let options = |names: &[&str]| match operand {
            RawBsonRef::Document(options) => known(name, options, names).map(|()| options),
            _ => Err(CommandError::new(Code::FailedToParse, format!("{name} expects an object"))),
        };
        let count = |options: &RawDocument| -> Result<usize> {
            let count = parsed(option(name, options, "n")?, variables)?
                .eval(crate::commands::reading::find::empty())?;
            let count = match count {
                Some(Bson::Int32(n)) => usize::try_from(n).ok(),
                Some(Bson::Int64(n)) => usize::try_from(n).ok(),
                Some(Bson::Double(n)) if n.fract() == 0.0 && n > 0.0 => Some(n as usize),
                _ => None,
            };
            count.filter(|n| *n > 0).ok_or_else(|| CommandError {
                code: 5_787_908,
                message: format!("`n` of {name} must be a whole number above 0"),
            })
        };
        let accumulator = match name {
            "$sum" => Self::Sum,
            "$count" => return Ok((Self::Sum, Expression::parse(RawBsonRef::Int32(1))?)),
            "$avg" => Self::Avg,
            "$min" => Self::Min,
            "$max" => Self::Max,
            "$first" => Self::First,
            "$last" => Self::Last,
            "$push" => Self::Push,
            "$addToSet" => Self::AddToSet,
            "$mergeObjects" => Self::MergeObjects,
            "$stdDevPop" => Self::StdDev(false),
            "$stdDevSamp" => Self::StdDev(true),
            "$firstN" | "$lastN" | "$maxN" | "$minN" => {
                let options = options(&["n", "input"])?;
                let n = count(options)?;
                let accumulator = match name {
                    "$firstN" => Self::FirstN(n),
                    "$lastN" => Self::LastN(n),
                    name => Self::ExtremeN(n, name == "$maxN"),
                };
                return Ok((accumulator, expression(option(name, options, "input")?)?));
            }
            "$top" | "$topN" | "$bottom" | "$bottomN" => {
                let single = !name.ends_with('N');
                let options =
                    options(if single { &["sortBy", "output"] } else { &["n", "sortBy", "output"] })?;
                let RawBsonRef::Document(order) = option(name, options, "sortBy")? else {
                    return Err(CommandError::new(
                        Code::FailedToParse,
                        format!("`sortBy` of {name} must be an object"),
                    ));
                };
                let accumulator = Self::TopN {
                    count: if single { 1 } else { count(options)? },
                    order: super::sort_order(order, variables)?,
                    bottom: name.starts_with("$bottom"),
                    single,
                };
                return Ok((accumulator, expression(option(name, options, "output")?)?));
            }
            "$accumulator" => {
                let RawBsonRef::Document(options) = operand else {
                    return Err(CommandError::new(Code::FailedToParse, "$accumulator expects an object"));
                };
                let (script, arguments) = ScriptAccumulator::parse(options, variables)?;
                return Ok((Self::Script(Box::new(script)), arguments));
            }
            "$median" | "$percentile" => {
                let options = options(&["input", "p", "method"])?;
                let input = expression(option(name, options, "input")?)?;
                let mut changed = RawDocumentBuf::new();
                for field in options {
                    let (field, value) = field?;
                    if field.as_str() == "input" {
                        changed.append(field, "$v");
                    } else {
                        changed.append(field, value);
                    }
                }
                let mut call = RawDocumentBuf::new();
                call.append(CString::try_from(name.to_owned())?, changed);
                return Ok((Self::OfAll(expression(RawBsonRef::Document(&call))?), input));
            }
            other => {
                let message = format!("unknown group operator '{other}'");
                return Err(CommandError { code: 15952, message });
            }
        };
        Ok((accumulator, expression(operand)?))
    }
}

impl State {
    /// Takes the value of a document, whose memory is counted as far as it is kept.
    pub fn add(
        &mut self,
        accumulator: &Accumulator,
        value: Option<Bson>,
        by: Option<&Collation>,
        held: &mut HeldMemory,
    ) -> Result<()> {
        match accumulator {
            Accumulator::Sum | Accumulator::Avg => self.add_number(value.as_ref())?,
            Accumulator::Min | Accumulator::Max => {
                let Some(value) = value.filter(|value| *value != Bson::Null) else { return Ok(()) };
                let better = match &self.value {
                    None => true,
                    Some(best) => {
                        let (new, best) = (Key::of_bson_by(&value, by)?, Key::of_bson_by(best, by)?);
                        if matches!(accumulator, Accumulator::Min) { new < best } else { new > best }
                    }
                };
                if better {
                    self.replace(Some(value), held)?;
                }
            }
            Accumulator::First => {
                if self.count == 0 {
                    self.replace(value, held)?;
                }
                self.count += 1;
            }
            Accumulator::Last => self.replace(value, held)?,
            Accumulator::Script(script) => {
                let state = script.add(self.value.take(), value)?;
                self.replace(Some(state), held)?;
            }
            Accumulator::Push | Accumulator::StdDev(_) | Accumulator::OfAll(_) => {
                if let Some(value) = value {
                    self.keep(value, held)?;
                }
            }
            Accumulator::FirstN(most) if self.values.len() >= *most => {}
            Accumulator::FirstN(_) => self.keep(value.unwrap_or(Bson::Null), held)?,
            Accumulator::LastN(most) => {
                self.keep(value.unwrap_or(Bson::Null), held)?;
                if self.values.len() >= most.saturating_mul(2).max(KEPT_MIN) {
                    let gone = self.values.drain(..self.values.len() - most);
                    held.give_back(gone.map(|value| value_bytes(&value)).sum());
                }
            }
            // by a key, which the caller has
            Accumulator::TopN { .. } => {}
            Accumulator::ExtremeN(most, largest) => {
                if let Some(value) = value.filter(|value| *value != Bson::Null) {
                    let key = Key::of_bson_by(&value, by)?;
                    let kept = if *largest { Kept::Largest } else { Kept::First };
                    self.keep_by(key, value, *most, kept, held)?;
                }
            }
            Accumulator::MergeObjects => match value {
                Some(Bson::Document(fields)) => self.merge(fields, held)?,
                None | Some(Bson::Null) => {}
                Some(_) => {
                    let message = "$mergeObjects requires object inputs".to_owned();
                    return Err(CommandError { code: 40400, message });
                }
            },
            Accumulator::AddToSet => {
                let Some(value) = value else { return Ok(()) };
                let key = Key::of_bson_by(&value, by)?;
                if !self.seen.contains(&key) {
                    held.add(size_of::<Key>() + key.heap_bytes())?;
                    self.keep(value, held)?;
                    self.seen.insert(key);
                }
            }
        }
        Ok(())
    }

    /// Takes a value of `$top`, `$bottom` and the like by the key that orders it.
    pub fn add_by(
        &mut self,
        accumulator: &Accumulator,
        key: Key,
        value: Bson,
        held: &mut HeldMemory,
    ) -> Result<()> {
        match accumulator {
            Accumulator::TopN { count, bottom, .. } => {
                let kept = if *bottom { Kept::Last } else { Kept::First };
                self.keep_by(key, value, *count, kept, held)
            }
            _ => Ok(()),
        }
    }

    fn keep(&mut self, value: Bson, held: &mut HeldMemory) -> Result<()> {
        held.add(value_bytes(&value))?;
        self.values.push(value);
        Ok(())
    }

    /// Keeps a value with its key; of many values those that are wanted.
    fn keep_by(
        &mut self,
        key: Key,
        value: Bson,
        most: usize,
        kept: Kept,
        held: &mut HeldMemory,
    ) -> Result<()> {
        let bytes = |(key, value): &(Key, Bson)| size_of::<Key>() + key.heap_bytes() + value_bytes(value);
        let entry = (key, value);
        held.add(bytes(&entry))?;
        self.keyed.push(entry);
        if self.keyed.len() >= most.saturating_mul(2).max(KEPT_MIN) {
            // the sort is stable, so that of values with equal keys the same ones are left as without this
            self.keyed.sort_by(|(a, _), (b, _)| if kept == Kept::Largest { b.cmp(a) } else { a.cmp(b) });
            let gone = match kept {
                Kept::First | Kept::Largest => self.keyed.drain(most..),
                Kept::Last => self.keyed.drain(..self.keyed.len() - most),
            };
            held.give_back(gone.map(|entry| bytes(&entry)).sum());
        }
        Ok(())
    }

    fn replace(&mut self, value: Option<Bson>, held: &mut HeldMemory) -> Result<()> {
        let bytes = value.as_ref().map_or(0, value_bytes);
        held.add(bytes)?;
        held.give_back(std::mem::replace(&mut self.counted, bytes));
        self.value = value;
        Ok(())
    }

    fn merge(&mut self, fields: Document, held: &mut HeldMemory) -> Result<()> {
        let mut merged = match self.value.take() {
            Some(Bson::Document(merged)) => merged,
            _ => Document::new(),
        };
        let bytes: usize = fields.iter().map(|(name, value)| 2 * name.len() + 48 + value_bytes(value)).sum();
        held.add(bytes)?;
        self.counted += bytes;
        merged.extend(fields);
        let merged = Bson::Document(merged);
        // fields that were replaced are not there any more
        self.count += bytes as i64;
        if self.count > (MERGED_BYTES_MIN.max(self.counted / 2)) as i64 {
            self.count = 0;
            let bytes = value_bytes(&merged).min(self.counted);
            held.give_back(self.counted - bytes);
            self.counted = bytes;
        }
        self.value = Some(merged);
        Ok(())
    }

    fn add_number(&mut self, value: Option<&Bson>) -> Result<()> {
        let number = match value {
            Some(Bson::Int32(n)) => i64::from(*n),
            Some(Bson::Int64(n)) => {
                self.long = true;
                *n
            }
            Some(Bson::Double(n)) => {
                self.float = Some(self.float.unwrap_or(0.0) + n);
                self.count += 1;
                return Ok(());
            }
            Some(Bson::Decimal128(n)) => {
                let sum = self.decimal.unwrap_or_else(|| decimal_math::of_whole(0));
                self.decimal = Some(decimal_math::add(sum, *n));
                self.count += 1;
                return Ok(());
            }
            // other values do not count
            _ => return Ok(()),
        };
        self.count += 1;
        match self.whole.checked_add(number) {
            Some(sum) => self.whole = sum,
            None => {
                self.float = Some(self.float.unwrap_or(0.0) + self.whole as f64 + number as f64);
                self.whole = 0;
            }
        }
        Ok(())
    }

    /// Returns the sum of the numbers, as the widest of their types.
    fn sum(&self) -> Bson {
        if let Some(decimal) = self.decimal {
            let rest = decimal_math::add(
                decimal_math::of_whole(self.whole),
                decimal_math::of_double(self.float.unwrap_or(0.0)),
            );
            return Bson::Decimal128(decimal_math::add(decimal, rest));
        }
        match (self.float, i32::try_from(self.whole)) {
            (Some(float), _) => Bson::Double(float + self.whole as f64),
            (None, Ok(whole)) if !self.long => Bson::Int32(whole),
            (None, _) => Bson::Int64(self.whole),
        }
    }

    /// Returns the result of all values.
    pub fn result(mut self, accumulator: &Accumulator) -> Result<Bson> {
        Ok(match accumulator {
            Accumulator::Sum => self.sum(),
            Accumulator::Avg if self.count == 0 => Bson::Null,
            Accumulator::Avg => match self.sum() {
                Bson::Decimal128(sum) => {
                    Bson::Decimal128(decimal_math::divide(sum, decimal_math::of_whole(self.count)))
                }
                _ => Bson::Double((self.float.unwrap_or(0.0) + self.whole as f64) / self.count as f64),
            },
            Accumulator::Min | Accumulator::Max | Accumulator::First | Accumulator::Last => {
                self.value.unwrap_or(Bson::Null)
            }
            Accumulator::MergeObjects => self.value.unwrap_or_else(|| Bson::Document(Document::new())),
            Accumulator::Push | Accumulator::AddToSet | Accumulator::FirstN(_) => Bson::Array(self.values),
            Accumulator::LastN(count) => {
                let skip = self.values.len().saturating_sub(*count);
                Bson::Array(self.values.split_off(skip))
            }
            Accumulator::StdDev(sample) => deviation(&self.values, *sample),
            Accumulator::ExtremeN(count, largest) => {
                self.keyed.sort_by(|(a, _), (b, _)| if *largest { b.cmp(a) } else { a.cmp(b) });
                Bson::Array(self.keyed.into_iter().take(*count).map(|(_, value)| value).collect())
            }
            Accumulator::TopN { count, bottom, single, .. } => {
                self.keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
                let skip = if *bottom { self.keyed.len().saturating_sub(*count) } else { 0 };
                let mut chosen = self.keyed.into_iter().skip(skip).take(*count).map(|(_, value)| value);
                if *single { chosen.next().unwrap_or(Bson::Null) } else { Bson::Array(chosen.collect()) }
            }
            Accumulator::Script(script) => script.result(self.value)?,
            Accumulator::OfAll(expression) => {
                let mut all = Document::new();
                all.insert("v", self.values);
                expression.eval(&RawDocumentBuf::try_from(&all)?)?.unwrap_or(Bson::Null)
            }
        })
    }
}

/// Returns the standard deviation of the numbers; null without enough of them.
fn deviation(values: &[Bson], sample: bool) -> Bson {
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| match value {
            Bson::Int32(n) => Some(f64::from(*n)),
            Bson::Int64(n) => Some(*n as f64),
            Bson::Double(n) => Some(*n),
            Bson::Decimal128(n) => Some(decimal_math::to_double(*n)),
            _ => None,
        })
        .collect();
    let divisor = numbers.len() as f64 - f64::from(u8::from(sample));
    if divisor <= 0.0 {
        return Bson::Null;
    }
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares: f64 = numbers.iter().map(|n| (n - mean).powi(2)).sum();
    Bson::Double((squares / divisor).sqrt())
}
