//! `$group`: accumulators by key.

use std::collections::{HashMap, HashSet};

use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, cstr};
use tidemill_docs::{Collation, DocBytes, Expression, Key, SortOrder, Variables, decimal_math};

use super::{known, option};
use crate::error::{Code, CommandError, Result};

/// A compiled `$group`.
pub(in crate::commands) struct Group {
    id: Expression,
    fields: Vec<(CString, Accumulator, Expression)>,
    collation: Option<Collation>,
}

enum Accumulator {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    MergeObjects,
    /// Whether of a sample.
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
}

/// State of one field of one group.
#[derive(Default)]
struct State {
    whole: i64,
    /// Whether a sum of whole numbers needs 64 bits by the type of a summand.
    long: bool,
    float: Option<f64>,
    decimal: Option<bson::Decimal128>,
    count: i64,
    value: Option<Bson>,
    values: Vec<Bson>,
    keyed: Vec<(Key, Bson)>,
    seen: HashSet<Key>,
}

impl Group {
    pub fn parse(stage: &RawDocument, variables: &Variables) -> Result<Self> {
        let (mut id, mut fields) = (None, Vec::new());
        for element in stage {
            let (name, value) = element?;
            if name.as_str() == "_id" {
                id = Some(Expression::parse_with(value, variables)?);
                continue;
            }
            let RawBsonRef::Document(accumulator) = value else {
                let message = format!("The field '{}' must be an accumulator object", name.as_str());
                return Err(CommandError { code: 40234, message });
            };
            let mut operators = accumulator.into_iter();
            let (Some(operator), None) = (operators.next().transpose()?, operators.next()) else {
                let message = format!("The field '{}' must specify one accumulator", name.as_str());
                return Err(CommandError { code: 40238, message });
            };
            let (accumulator, operand) = Accumulator::parse(operator.0.as_str(), operator.1, variables)?;
            fields.push((CString::try_from(name.as_str().to_owned())?, accumulator, operand));
        }
        let id = id.ok_or_else(|| CommandError {
            code: 15955,
            message: "a group specification must include an _id".into(),
        })?;
        Ok(Self { id, fields, collation: variables.collation.clone() })
    }

    /// Returns the stage that counts the documents by an expression.
    pub fn counting(by: RawBsonRef<'_>, variables: &Variables) -> Result<Self> {
        let one = Expression::parse(RawBsonRef::Int32(1))?;
        let name = CString::try_from("count".to_owned())?;
        Ok(Self {
            id: Expression::parse_with(by, variables)?,
            fields: vec![(name, Accumulator::Sum, one)],
            collation: variables.collation.clone(),
        })
    }

    /// Returns a document for each group, in the order in which the groups begin.
    pub fn apply(&self, documents: &[DocBytes]) -> Result<Vec<DocBytes>> {
        let mut index: HashMap<Key, usize> = HashMap::new();
        let mut groups: Vec<(Bson, Vec<State>)> = Vec::new();
        for document in documents {
            let raw = RawDocument::from_bytes(document)?;
            let id = self.id.eval(raw)?.unwrap_or(Bson::Null);
            let at = *index.entry(Key::of_bson_by(&id, self.collation.as_ref())?).or_insert_with(|| {
                groups.push((id, self.new_states()));
                groups.len() - 1
            });
            self.add(&mut groups[at].1, raw)?;
        }
        let mut out = Vec::with_capacity(groups.len());
        for (id, states) in groups {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), RawBson::try_from(id)?);
            self.append(states, &mut document)?;
            // many values together may be larger, and nested deeper, than a document may be
            out.push(tidemill_docs::validate(document.into_bytes())?);
        }
        Ok(out)
    }

    /// Appends the results over all documents, which are one group.
    pub fn append_results(&self, documents: &[DocBytes], out: &mut RawDocumentBuf) -> Result<()> {
        let mut states = self.new_states();
        for document in documents {
            self.add(&mut states, RawDocument::from_bytes(document)?)?;
        }
        self.append(states, out)
    }

    fn new_states(&self) -> Vec<State> {
        self.fields.iter().map(|_| State::default()).collect()
    }

    fn add(&self, states: &mut [State], document: &RawDocument) -> Result<()> {
        for ((_, accumulator, operand), state) in self.fields.iter().zip(states) {
            if let Accumulator::TopN { order, .. } = accumulator {
                let value = operand.eval(document)?.unwrap_or(Bson::Null);
                state.keyed.push((order.key(document.as_bytes()), value));
                continue;
            }
            state.add(accumulator, operand.eval(document)?, self.collation.as_ref())?;
        }
        Ok(())
    }

    fn append(&self, states: Vec<State>, out: &mut RawDocumentBuf) -> Result<()> {
        for ((name, accumulator, _), state) in self.fields.iter().zip(states) {
            out.append(name.clone(), RawBson::try_from(state.result(accumulator)?)?);
        }
        Ok(())
    }
}

impl Accumulator {
    /// Parses an accumulator. Returns it with the expression of the values that it takes.
    fn parse(name: &str, operand: RawBsonRef<'_>, variables: &Variables) -> Result<(Self, Expression)> {
        fn parsed(value: RawBsonRef<'_>, variables: &Variables) -> Result<Expression> {
            Ok(Expression::parse_with(value, variables)?)
        }
        let expression = |value: RawBsonRef<'_>| parsed(value, variables);
        let options = |names: &[&str]| match operand {
            RawBsonRef::Document(options) => known(name, options, names).map(|()| options),
            _ => Err(CommandError::new(Code::FailedToParse, format!("{name} expects an object"))),
        };
        let count = |options: &RawDocument| -> Result<usize> {
            let count =
                parsed(option(name, options, "n")?, variables)?.eval(crate::commands::find::empty())?;
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
    fn add(&mut self, accumulator: &Accumulator, value: Option<Bson>, by: Option<&Collation>) -> Result<()> {
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
                    self.value = Some(value);
                }
            }
            Accumulator::First => {
                if self.count == 0 {
                    self.value = value;
                }
                self.count += 1;
            }
            Accumulator::Last => self.value = value,
            Accumulator::Push => self.values.extend(value),
            Accumulator::FirstN(most) if self.values.len() >= *most => {}
            Accumulator::FirstN(_) | Accumulator::LastN(_) => self.values.push(value.unwrap_or(Bson::Null)),
            Accumulator::StdDev(_) | Accumulator::OfAll(_) | Accumulator::TopN { .. } => {
                self.values.extend(value)
            }
            Accumulator::ExtremeN(..) => {
                if let Some(value) = value.filter(|value| *value != Bson::Null) {
                    self.keyed.push((Key::of_bson_by(&value, by)?, value));
                }
            }
            Accumulator::MergeObjects => match value {
                Some(Bson::Document(fields)) => {
                    let mut merged = match self.value.take() {
                        Some(Bson::Document(merged)) => merged,
                        _ => Document::new(),
                    };
                    merged.extend(fields);
                    self.value = Some(Bson::Document(merged));
                }
                None | Some(Bson::Null) => {}
                Some(_) => {
                    let message = "$mergeObjects requires object inputs".to_owned();
                    return Err(CommandError { code: 40400, message });
                }
            },
            Accumulator::AddToSet => {
                if let Some(value) = value
                    && self.seen.insert(Key::of_bson_by(&value, by)?)
                {
                    self.values.push(value);
                }
            }
        }
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

    fn result(mut self, accumulator: &Accumulator) -> Result<Bson> {
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
