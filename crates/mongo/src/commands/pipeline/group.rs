//! `$group`: accumulators by key.

use std::collections::HashMap;

use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, cstr};
use tidemill_docs::{Collation, DocBytes, Expression, HeldMemory, Key, Variables, value_bytes};
use tidemill_types::budget;

use super::accumulator::{Accumulator, State};
use super::flow::{Chain, Flow, Receiver};
use crate::error::{CommandError, Result};

/// Bytes of a group besides those of its key and its states: two entries of tables.
const GROUP_BYTES: usize = 64 + size_of::<Key>();

/// A compiled `$group`.
pub(in crate::commands) struct GroupStage {
    id: Expression,
    fields: Vec<(CString, Accumulator, Expression)>,
    collation: Option<Collation>,
}

impl GroupStage {
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

    /// Returns the stage that passes on a document for each group, in the order in which the groups begin.
    pub(super) fn grouping<'r>(&'r self, next: Chain<'r>) -> Chain<'r> {
        Box::new(Grouping {
            group: self,
            places: HashMap::new(),
            groups: Vec::new(),
            held: HeldMemory::default(),
            next,
        })
    }

    /// Appends the results over all documents, which are one group.
    pub fn append_results(&self, documents: &[DocBytes], out: &mut RawDocumentBuf) -> Result<()> {
        let mut states = self.new_states();
        let mut held = HeldMemory::default();
        for document in documents {
            budget::step()?;
            self.add(&mut states, RawDocument::from_bytes(document)?, &mut held)?;
        }
        self.append(states, out)
    }

    fn new_states(&self) -> Vec<State> {
        self.fields.iter().map(|_| State::default()).collect()
    }

    fn add(&self, states: &mut [State], document: &RawDocument, held: &mut HeldMemory) -> Result<()> {
        for ((_, accumulator, operand), state) in self.fields.iter().zip(states) {
            let value = operand.eval(document)?;
            match accumulator {
                Accumulator::TopN { order, .. } => {
                    let key = order.key(document.as_bytes());
                    state.add_by(accumulator, key, value.unwrap_or(Bson::Null), held)?;
                }
                _ => state.add(accumulator, value, self.collation.as_ref(), held)?,
            }
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

/// The groups as they grow.
struct Grouping<'r> {
    group: &'r GroupStage,
    places: HashMap<Key, usize>,
    groups: Vec<(Bson, Vec<State>)>,
    held: HeldMemory,
    next: Chain<'r>,
}

impl Receiver for Grouping<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        budget::step()?;
        let (group, raw) = (self.group, RawDocument::from_bytes(&document)?);
        let id = group.id.eval(raw)?.unwrap_or(Bson::Null);
        let key = Key::of_bson_by(&id, group.collation.as_ref())?;
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None => {
                let states = group.fields.len() * size_of::<State>();
                self.held.add(GROUP_BYTES + key.heap_bytes() + value_bytes(&id) + states)?;
                self.groups.push((id, group.new_states()));
                self.places.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        if let Some((_, states)) = self.groups.get_mut(at) {
            group.add(states, raw, &mut self.held)?;
        }
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        self.places = HashMap::new();
        for (id, states) in std::mem::take(&mut self.groups) {
            budget::step()?;
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), RawBson::try_from(id)?);
            self.group.append(states, &mut document)?;
            // many values together may be larger, and nested deeper, than a document may be
            if self.next.push(tidemill_docs::validate(document.into_bytes())?)?.is_break() {
                break;
            }
        }
        self.held = HeldMemory::default();
        self.next.finish()
    }
}
