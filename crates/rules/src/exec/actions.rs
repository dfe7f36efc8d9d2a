//! Executing the actions of a rule: first all values are computed, then all documents are changed or none.

use std::sync::Arc;

use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, RawBsonRef};
use tidemill_docs::{DocBytes, ErrorCode, Store, Update, get_path};
use tidemill_types::decode::FieldValue;
use tidemill_types::{FieldType, StreamSchema, Timestamp, Value};

use super::context::ExecutionContext;
use crate::catalog::{Entity, RuleCatalog};
use crate::expr::eval::{append, eval};
use crate::expr::ops::{self, ArithmeticOp};
use crate::expr::{Bindings, Expr, RuleValue};
use crate::plan::{Action, Change, ChangeOp, RulePlan};

/// A document change whose values are computed and that can be applied.
pub(crate) enum DocumentChange {
    Update {
        entity: usize,
        id: RuleValue<'static>,
        update: Arc<Update>,
    },
    Insert {
        entity: usize,
        id: RuleValue<'static>,
        doc: DocBytes,
    },
    /// Sets the fields if the document exists, else inserts `doc`.
    Upsert {
        entity: usize,
        id: RuleValue<'static>,
        update: Arc<Update>,
        doc: DocBytes,
    },
    Delete {
        entity: usize,
        id: RuleValue<'static>,
    },
}

/// An event whose values are computed and that can be emitted.
pub(crate) struct NewEvent {
    pub stream: usize,
    pub cells: Vec<FieldValue>,
    pub time: i64,
}

/// Document changes and events of one firing.
#[derive(Default)]
pub(crate) struct PreparedFiring {
    pub changes: Vec<DocumentChange>,
    pub events: Vec<NewEvent>,
}

impl PreparedFiring {
    /// Computes the changes and events of `rule` for the documents in `frame`. Errors: a message for the user
    /// about the action that cannot be done.
    pub(crate) fn compute(
        &mut self,
        rule: &RulePlan,
        catalog: &RuleCatalog,
        frame: &Bindings<'_>,
    ) -> Result<(), String> {
        self.changes.clear();
        self.events.clear();
        for action in &rule.actions {
            match action {
                Action::Update { slot, changes, precomputed: fixed } => {
                    let update = match fixed {
                        Some(fixed) => fixed.clone(),
                        None => Arc::new(update(changes, frame)?),
                    };
                    if !update.is_empty() {
                        let entity = rule.slots[*slot].entity;
                        self.changes.push(DocumentChange::Update {
                            entity,
                            id: doc_id(frame, *slot)?,
                            update,
                        });
                    }
                }
                Action::Delete { slot, .. } => {
                    let entity = rule.slots[*slot].entity;
                    self.changes.push(DocumentChange::Delete { entity, id: doc_id(frame, *slot)? });
                }
                Action::Insert { entity, key, fields, upsert, .. } => {
                    let change = insert(*entity, &catalog.entities[*entity], key, fields, *upsert, frame)?;
                    self.changes.push(change);
                }
                Action::Emit { stream, cells, .. } => {
                    let schema = &catalog.streams[*stream];
                    let cells = emit(schema, cells, frame)?;
                    let time = match schema.time.map(|t| &cells[t]) {
                        Some(FieldValue::Time(t)) => t.0,
                        _ => frame.row.now(),
                    };
                    self.events.push(NewEvent { stream: *stream, cells, time });
                }
            }
        }
        Ok(())
    }

    /// Applies all document changes and returns the number of documents changed. After an error none is left:
    /// the changes before it are rolled back.
    pub(crate) fn apply_changes<H: ExecutionContext>(
        &mut self,
        host: &mut H,
        catalog: &RuleCatalog,
        now: i64,
    ) -> Result<u64, String> {
        if self.changes.is_empty() {
            return Ok(0);
        }
        let store = host.store();
        let mut undo: Vec<UndoChange> = Vec::new();
        let mut changed = 0;
        for change in &self.changes {
            match apply_change(store, catalog, change, Timestamp(now)) {
                Ok(Some(back)) => {
                    changed += 1;
                    undo.push(back);
                }
                Ok(None) => {}
                Err(message) => {
                    for back in undo.into_iter().rev() {
                        back.run(store, catalog)
                            .map_err(|e| format!("{message}; the rollback failed: {e}"))?;
                    }
                    return Err(message);
                }
            }
        }
        Ok(changed)
    }
}

/// The inverse of an applied change, used to roll back a firing.
enum UndoChange {
    Remove(usize, RuleValue<'static>),
    Restore(usize, DocBytes),
    InsertAgain(usize, DocBytes),
}

impl UndoChange {
    fn run(self, store: &mut Store, catalog: &RuleCatalog) -> Result<(), String> {
        let entity = match &self {
            Self::Remove(e, _) | Self::Restore(e, _) | Self::InsertAgain(e, _) => *e,
        };
        let collection = store.require(&catalog.entities[entity].name).map_err(|e| e.to_string())?;
        match self {
            Self::Remove(_, id) => collection.delete_by_id(&id.to_value()).map(drop),
            Self::Restore(_, doc) => collection.replace(doc).map(drop),
            Self::InsertAgain(_, doc) => collection.insert(doc).map(drop),
        }
        .map_err(|e| e.to_string())
    }
}

/// Applies one change. Returns `None` if the document stayed as it was.
fn apply_change(
    store: &mut Store,
    catalog: &RuleCatalog,
    change: &DocumentChange,
    now: Timestamp,
) -> Result<Option<UndoChange>, String> {
    let (DocumentChange::Update { entity, .. }
    | DocumentChange::Insert { entity, .. }
    | DocumentChange::Upsert { entity, .. }
    | DocumentChange::Delete { entity, .. }) = change;
    let target = &catalog.entities[*entity];
    let collection = store.require(&target.name).map_err(|e| e.to_string())?;
    match change {
        DocumentChange::Update { id, update, .. } | DocumentChange::Upsert { id, update, .. }
            if matches!(change, DocumentChange::Update { .. })
                || collection.get(&id.to_value()).is_some() =>
        {
            let outcome = collection
                .update_one_by_id(&id.to_value(), update, now)
                .map_err(|e| format!("update of {} {id}: {e}", target.name))?;
            match outcome.before {
                None => Err(format!(
                    "update of {} {id}: the document was deleted after the conditions matched it",
                    target.name
                )),
                Some(before) if outcome.after.as_ref() != Some(&before) => {
                    Ok(Some(UndoChange::Restore(*entity, before)))
                }
                Some(_) => Ok(None),
            }
        }
        DocumentChange::Insert { id, doc, .. } | DocumentChange::Upsert { id, doc, .. } => {
            match collection.insert(doc.clone()) {
                Ok(_) => Ok(Some(UndoChange::Remove(*entity, id.clone()))),
                Err(e)
                    if e.error_code() == ErrorCode::DuplicateKey
                        && collection.get(&id.to_value()).is_some() =>
                {
                    Err(format!(
                        "insert of {}: a document with `{}` {id} already exists; use `upsert` to set the fields of an existing one",
                        target.name, target.key
                    ))
                }
                Err(e) => Err(format!("insert of {} {id}: {e}", target.name)),
            }
        }
        DocumentChange::Delete { id, .. } => {
            let gone = collection.delete_by_id(&id.to_value()).map_err(|e| e.to_string())?;
            Ok(gone.map(|doc| UndoChange::InsertAgain(*entity, doc)))
        }
        // not reached: the first arm matches every `Update`
        DocumentChange::Update { .. } => Ok(None),
    }
}

/// Returns the `_id` of a bound document.
fn doc_id(frame: &Bindings<'_>, slot: usize) -> Result<RuleValue<'static>, String> {
    let id = frame.doc(slot).map(|doc| RuleValue::from_value(get_path(doc, "_id")));
    id.map(RuleValue::into_owned)
        .ok_or_else(|| "internal error: a matched document cannot be read".to_owned())
}

/// Combines the changes of one document into one update. A change whose value is missing leaves its field
/// alone.
fn update(changes: &[Change], frame: &Bindings<'_>) -> Result<Update, String> {
    let mut update = Update::new();
    for change in changes {
        let path = change.path.as_str();
        let value = match &change.value {
            Some(value) => eval(value, frame),
            None => {
                update = update.unset(path);
                continue;
            }
        };
        if matches!(value, RuleValue::Missing) {
            continue;
        }
        update = match change.op {
            ChangeOp::Set | ChangeOp::Unset => update.set_value(path, &value.to_value()),
            ChangeOp::Push => update.push(path, to_bson(&value)),
            ChangeOp::Mul => update.mul(path, number(&value, path, "*=")?),
            ChangeOp::Add | ChangeOp::Sub => {
                let value = if change.op == ChangeOp::Sub { ops::negate(&value) } else { value };
                // adding a span shifts a time; to a number it adds the span's milliseconds
                match (&value, eval(&change.before, frame)) {
                    (RuleValue::Span(_), before @ RuleValue::Time(_)) => {
                        update.set_value(path, &ops::arith(ArithmeticOp::Add, before, value).to_value())
                    }
                    _ => update.inc(path, number(&value, path, "+=")?),
                }
            }
        };
    }
    Ok(update)
}

fn number(value: &RuleValue<'_>, path: &str, op: &str) -> Result<Bson, String> {
    match value {
        RuleValue::Int(_) | RuleValue::Float(_) | RuleValue::Span(_) => Ok(to_bson(value)),
        other => Err(format!("`{path} {op}` needs a number, found {other}")),
    }
}

fn to_bson(value: &RuleValue<'_>) -> Bson {
    value.to_raw_bson().and_then(|raw| Bson::try_from(raw).ok()).unwrap_or(Bson::Null)
}

fn insert(
    entity: usize,
    target: &Entity,
    key: &Expr,
    fields: &[(Arc<str>, Expr)],
    upsert: bool,
    frame: &Bindings<'_>,
) -> Result<DocumentChange, String> {
    let id = eval(key, frame).into_owned();
    let Some(raw_id) = id.to_raw_bson().filter(|_| !id.is_absent()) else {
        return Err(format!("a new {} needs its key `{}`, which is missing", target.name, target.key));
    };
    if matches!(raw_id, RawBson::Array(_)) {
        return Err(format!("the key `{}` of a new {} cannot be an array", target.key, target.name));
    }
    let mut doc = RawDocumentBuf::new();
    append(&mut doc, "_id", raw_id);
    let mut update = Update::new();
    for (name, expr) in fields {
        let value = eval(expr, frame);
        if matches!(value, RuleValue::Missing) {
            continue;
        }
        if upsert && name.as_ref() != target.key {
            update = update.set_value(name, &value.to_value());
        }
        if let (false, Some(value)) = (name.as_ref() == "_id", value.to_raw_bson()) {
            append(&mut doc, name, value);
        }
    }
    let doc = DocBytes::from(doc.into_bytes());
    Ok(if upsert {
        DocumentChange::Upsert { entity, id, update: Arc::new(update), doc }
    } else {
        DocumentChange::Insert { entity, id, doc }
    })
}

fn emit(
    schema: &StreamSchema,
    exprs: &[Option<Expr>],
    frame: &Bindings<'_>,
) -> Result<Vec<FieldValue>, String> {
    let mut cells = Vec::with_capacity(exprs.len());
    for (field, expr) in schema.fields.iter().zip(exprs) {
        let value = expr.as_ref().map_or(RuleValue::Missing, |e| eval(e, frame));
        let cell = cell(field.ty, &value).ok_or_else(|| {
            format!(
                "emit {}: field `{}` is {}, found {} {value}",
                schema.name,
                field.name,
                field.ty,
                value.type_name()
            )
        })?;
        cells.push(cell);
    }
    Ok(cells)
}

/// Converts the value to a cell of type `ty`; `None` if it does not fit.
fn cell(ty: FieldType, value: &RuleValue<'_>) -> Option<FieldValue> {
    Some(match (ty, value) {
        (_, RuleValue::Missing | RuleValue::Null) => FieldValue::Missing,
        (FieldType::Bool, RuleValue::Bool(b)) => FieldValue::Bool(*b),
        (FieldType::Int, RuleValue::Int(n)) => FieldValue::Int(i32::try_from(*n).ok()?.into()),
        (FieldType::Int, RuleValue::Float(x)) => {
            FieldValue::Int(i32::try_from(exact_integer(*x)?).ok()?.into())
        }
        (FieldType::Long, RuleValue::Int(n)) => FieldValue::Int(*n),
        (FieldType::Long, RuleValue::Float(x)) => FieldValue::Int(exact_integer(*x)?),
        (FieldType::Long, RuleValue::Span(d)) => FieldValue::Int(d / 1000),
        (FieldType::Float | FieldType::Double, RuleValue::Int(n)) => FieldValue::Float(*n as f64),
        (FieldType::Float | FieldType::Double, RuleValue::Float(x)) => FieldValue::Float(*x),
        (FieldType::String, RuleValue::Str(s)) => FieldValue::Text(s.as_ref().to_owned()),
        (FieldType::Time, RuleValue::Time(t)) => FieldValue::Time(Timestamp(*t)),
        (FieldType::Object, value) => FieldValue::Text(value.to_json().to_string()),
        _ => return None,
    })
}

fn exact_integer(x: f64) -> Option<i64> {
    (x.fract() == 0.0).then(|| ops::round_to_integer(x)).flatten()
}

/// Returns the `_id` of a stored document for messages; an object id as its hex string.
pub(crate) fn id_of(doc: &DocBytes) -> RuleValue<'_> {
    match bson::RawDocument::from_bytes(doc.as_ref()) {
        Ok(raw) => match get_path(raw, "_id") {
            Value::Bson(RawBsonRef::ObjectId(id)) => RuleValue::text(id.to_hex()),
            other => RuleValue::from_value(other),
        },
        Err(_) => RuleValue::Missing,
    }
}
