//! `$group`: accumulators by key.

use std::collections::HashMap;

use bson::raw::{CString, RawBson, RawBsonRef, RawDocument};
use bson::{Bson, Document};
use tidemill_docs::{DocBytes, Key, get_path};

use super::{owned, with_id};
use crate::error::{CommandError, Result};

/// A compiled `$group`.
pub(super) struct Group {
    id: Operand,
    fields: Vec<(CString, Accumulator, Operand)>,
}

/// Expression of a key or an argument: paths, constants, and objects of them.
enum Operand {
    Path(String),
    Constant(Bson),
    Object(Vec<(String, Self)>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Accumulator {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
}

/// State of one field of one group.
#[derive(Default)]
struct State {
    whole: i64,
    /// Whether a sum of whole numbers needs 64 bits by the type of a summand.
    long: bool,
    float: Option<f64>,
    count: i64,
    value: Option<Bson>,
    values: Vec<Bson>,
    seen: HashMap<Key, ()>,
}

impl Group {
    pub fn parse(stage: &RawDocument) -> Result<Self> {
        let (mut id, mut fields) = (None, Vec::new());
        for element in stage {
            let (name, value) = element?;
            if name.as_str() == "_id" {
                id = Some(Operand::parse(value)?);
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
            let (accumulator, operand) = match operator.0.as_str() {
                "$sum" => (Accumulator::Sum, Operand::parse(operator.1)?),
                "$count" => (Accumulator::Sum, Operand::Constant(Bson::Int32(1))),
                "$avg" => (Accumulator::Avg, Operand::parse(operator.1)?),
                "$min" => (Accumulator::Min, Operand::parse(operator.1)?),
                "$max" => (Accumulator::Max, Operand::parse(operator.1)?),
                "$first" => (Accumulator::First, Operand::parse(operator.1)?),
                "$last" => (Accumulator::Last, Operand::parse(operator.1)?),
                "$push" => (Accumulator::Push, Operand::parse(operator.1)?),
                "$addToSet" => (Accumulator::AddToSet, Operand::parse(operator.1)?),
                other => return Err(CommandError::not_supported(format!("the accumulator `{other}`"))),
            };
            fields.push((CString::try_from(name.as_str().to_owned())?, accumulator, operand));
        }
        let id = id.ok_or_else(|| CommandError {
            code: 15955,
            message: "a group specification must include an _id".into(),
        })?;
        Ok(Self { id, fields })
    }

    /// Returns a document for each group, in the order in which the groups begin.
    pub fn apply(&self, documents: &[DocBytes]) -> Result<Vec<DocBytes>> {
        let mut index: HashMap<Key, usize> = HashMap::new();
        let mut groups: Vec<(Bson, Vec<State>)> = Vec::new();
        for document in documents {
            let raw = RawDocument::from_bytes(document)?;
            let id = self.id.eval(raw)?.unwrap_or(Bson::Null);
            let at = *index.entry(key_of(&id)?).or_insert_with(|| {
                groups.push((id, self.fields.iter().map(|_| State::default()).collect()));
                groups.len() - 1
            });
            for ((_, accumulator, operand), state) in self.fields.iter().zip(&mut groups[at].1) {
                state.add(*accumulator, operand.eval(raw)?)?;
            }
        }
        let mut out = Vec::with_capacity(groups.len());
        for (id, states) in groups {
            let mut document = with_id(&id)?;
            for ((name, accumulator, _), state) in self.fields.iter().zip(states) {
                document.append(name.clone(), RawBson::try_from(state.result(*accumulator))?);
            }
            out.push(document.into_bytes().into());
        }
        Ok(out)
    }
}

impl Operand {
    fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::String(text) if text.starts_with("$$") => {
                Err(CommandError::not_supported(format!("the variable `{text}`")))
            }
            RawBsonRef::String(text) if text.starts_with('$') => Ok(Self::Path(text[1..].to_owned())),
            RawBsonRef::Document(document) => {
                let mut fields = Vec::new();
                for element in document {
                    let (name, value) = element?;
                    match name.as_str() {
                        "$literal" => return Ok(Self::Constant(owned(value)?)),
                        operator if operator.starts_with('$') => {
                            return Err(CommandError::not_supported(format!(
                                "the expression `{operator}` in `$group`"
                            )));
                        }
                        name => fields.push((name.to_owned(), Self::parse(value)?)),
                    }
                }
                Ok(Self::Object(fields))
            }
            RawBsonRef::Array(_) => Err(CommandError::not_supported("an array as an expression in `$group`")),
            other => Ok(Self::Constant(owned(other)?)),
        }
    }

    /// Evaluates the expression; `None` for a missing field.
    fn eval(&self, document: &RawDocument) -> Result<Option<Bson>> {
        Ok(match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Path(path) => at_path(RawBsonRef::Document(document), path)?,
            Self::Object(fields) => {
                let mut object = Document::new();
                for (name, operand) in fields {
                    if let Some(value) = operand.eval(document)? {
                        object.insert(name, value);
                    }
                }
                Some(Bson::Document(object))
            }
        })
    }
}

/// Returns the value at a path; of an array on the way, those of its documents.
fn at_path(value: RawBsonRef<'_>, path: &str) -> Result<Option<Bson>> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match value {
        RawBsonRef::Document(document) => match (document.get(name)?, rest) {
            (None, _) => Ok(None),
            (Some(inner), None) => owned(inner).map(Some),
            (Some(inner), Some(rest)) => at_path(inner, rest),
        },
        RawBsonRef::Array(array) => {
            let mut values = Vec::new();
            for element in array {
                values.extend(at_path(element?, path)?);
            }
            Ok(Some(Bson::Array(values)))
        }
        _ => Ok(None),
    }
}

/// Returns the key by which values are compared: 1, 1.0 and 1 as a long are one.
fn key_of(value: &Bson) -> Result<Key> {
    let wrapped = with_id(value)?;
    Ok(Key::of(&get_path(&wrapped, "_id")))
}

impl State {
    fn add(&mut self, accumulator: Accumulator, value: Option<Bson>) -> Result<()> {
        match accumulator {
            Accumulator::Sum | Accumulator::Avg => self.add_number(value.as_ref())?,
            Accumulator::Min | Accumulator::Max => {
                let Some(value) = value.filter(|value| *value != Bson::Null) else { return Ok(()) };
                let better = match &self.value {
                    None => true,
                    Some(best) => {
                        let (new, best) = (key_of(&value)?, key_of(best)?);
                        if accumulator == Accumulator::Min { new < best } else { new > best }
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
            Accumulator::AddToSet => {
                if let Some(value) = value
                    && self.seen.insert(key_of(&value)?, ()).is_none()
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
            Some(Bson::Decimal128(_)) => return Err(CommandError::not_supported("a sum of decimals")),
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

    fn result(self, accumulator: Accumulator) -> Bson {
        let sum = |state: &Self| state.float.map_or(state.whole as f64, |float| float + state.whole as f64);
        match accumulator {
            Accumulator::Sum => match (self.float, i32::try_from(self.whole)) {
                (Some(_), _) => Bson::Double(sum(&self)),
                (None, Ok(whole)) if !self.long => Bson::Int32(whole),
                (None, _) => Bson::Int64(self.whole),
            },
            Accumulator::Avg if self.count == 0 => Bson::Null,
            Accumulator::Avg => Bson::Double(sum(&self) / self.count as f64),
            Accumulator::Min | Accumulator::Max | Accumulator::First | Accumulator::Last => {
                self.value.unwrap_or(Bson::Null)
            }
            Accumulator::Push | Accumulator::AddToSet => Bson::Array(self.values),
        }
    }
}
