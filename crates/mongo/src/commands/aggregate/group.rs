//! `$group`: accumulators by key.

use std::collections::{HashMap, HashSet};

use bson::Bson;
use bson::raw::{CString, RawBson, RawBsonRef, RawDocument};
use tidemill_docs::{DocBytes, Expression, Key};

use super::with_id;
use crate::error::{CommandError, Result};

/// A compiled `$group`.
pub(in crate::commands) struct Group {
    id: Expression,
    fields: Vec<(CString, Accumulator, Expression)>,
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
    seen: HashSet<Key>,
}

impl Group {
    pub fn parse(stage: &RawDocument) -> Result<Self> {
        let (mut id, mut fields) = (None, Vec::new());
        for element in stage {
            let (name, value) = element?;
            if name.as_str() == "_id" {
                id = Some(Expression::parse(value)?);
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
                "$sum" => (Accumulator::Sum, Expression::parse(operator.1)?),
                "$count" => (Accumulator::Sum, Expression::parse(RawBsonRef::Int32(1))?),
                "$avg" => (Accumulator::Avg, Expression::parse(operator.1)?),
                "$min" => (Accumulator::Min, Expression::parse(operator.1)?),
                "$max" => (Accumulator::Max, Expression::parse(operator.1)?),
                "$first" => (Accumulator::First, Expression::parse(operator.1)?),
                "$last" => (Accumulator::Last, Expression::parse(operator.1)?),
                "$push" => (Accumulator::Push, Expression::parse(operator.1)?),
                "$addToSet" => (Accumulator::AddToSet, Expression::parse(operator.1)?),
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

    /// Returns the stage that counts the documents by an expression.
    pub fn counting(by: RawBsonRef<'_>) -> Result<Self> {
        let one = Expression::parse(RawBsonRef::Int32(1))?;
        let name = CString::try_from("count".to_owned())?;
        Ok(Self { id: Expression::parse(by)?, fields: vec![(name, Accumulator::Sum, one)] })
    }

    /// Returns a document for each group, in the order in which the groups begin.
    pub fn apply(&self, documents: &[DocBytes]) -> Result<Vec<DocBytes>> {
        let mut index: HashMap<Key, usize> = HashMap::new();
        let mut groups: Vec<(Bson, Vec<State>)> = Vec::new();
        for document in documents {
            let raw = RawDocument::from_bytes(document)?;
            let id = self.id.eval(raw)?.unwrap_or(Bson::Null);
            let at = *index.entry(Key::of_bson(&id)?).or_insert_with(|| {
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

impl State {
    fn add(&mut self, accumulator: Accumulator, value: Option<Bson>) -> Result<()> {
        match accumulator {
            Accumulator::Sum | Accumulator::Avg => self.add_number(value.as_ref())?,
            Accumulator::Min | Accumulator::Max => {
                let Some(value) = value.filter(|value| *value != Bson::Null) else { return Ok(()) };
                let better = match &self.value {
                    None => true,
                    Some(best) => {
                        let (new, best) = (Key::of_bson(&value)?, Key::of_bson(best)?);
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
                    && self.seen.insert(Key::of_bson(&value)?)
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
