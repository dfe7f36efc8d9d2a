//! `json:group`, `json:groupAsObject`.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::counted_multiset::CountedMultiset;
use super::{add, cloning_constructor, flag, foreign_state};
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::functions::json_text::{from_json, json_of};
use crate::functions::library::constant_text;
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    let text = [
        "string|object json, const bool distinct? -> string",
        "string|object json, string enclosing, const bool distinct? -> string",
    ];
    let object = [
        "string|object json, const bool distinct? -> object",
        "string|object json, string enclosing, const bool distinct? -> object",
    ];
    for (name, forms, as_object) in [("json:group", text, false), ("json:groupAsObject", object, true)] {
        add(registry, name, &forms, move |args| {
            let enclosed = args.get(1).is_some_and(|a| a.ty == FieldType::String);
            let enclosing = enclosed.then(|| Arc::from(constant_text(args, 1).unwrap_or_default()));
            let distinct = flag(args, if enclosed { 2 } else { 1 });
            cloning_constructor(GroupJson {
                held: CountedMultiset::default(),
                enclosing,
                distinct,
                as_object,
            })
        });
    }
}

/// JSON array of the values of all events. Equal values are adjacent, at the position of the first of them.
#[derive(Clone)]
struct GroupJson {
    /// Serialized values.
    held: CountedMultiset,
    /// Name of the only member of an object that wraps the array, from the last event. `None` without a
    /// wrapping object.
    enclosing: Option<Arc<str>>,
    distinct: bool,
    as_object: bool,
}

impl GroupJson {
    fn key(&mut self, args: &[Value]) -> Result<Key, EvalError> {
        if let (Some(enclosing), Some(Value::Str(name))) = (&mut self.enclosing, args.get(1)) {
            *enclosing = name.clone();
        }
        let name = if self.as_object { "json:groupAsObject" } else { "json:group" };
        let json = json_of(&args[0]).map_err(|e| EvalError::argument(format!("{name}: {e}")))?;
        Ok(Key(Value::text(&json.to_string())))
    }
}

impl Aggregator for GroupJson {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let key = self.key(args)?;
        self.held.add(key)
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let key = self.key(args)?;
        self.held.remove(&key);
        Ok(())
    }

    fn reset(&mut self) {
        self.held.clear();
    }

    fn value(&self) -> Value {
        let times = |count| if self.distinct { 1 } else { count as usize };
        let texts: Vec<&str> = self
            .held
            .in_order()
            .flat_map(|(key, count)| std::iter::repeat_n(key.0.as_str().unwrap_or("null"), times(count)))
            .collect();
        let array = format!("[{}]", texts.join(","));
        let text = match &self.enclosing {
            Some(name) => format!("{{{}:{array}}}", json!(&**name)),
            None => array,
        };
        if self.as_object {
            // cannot fail: all parts were parsed before
            serde_json::from_str(&text).map_or(Value::Null, |json| from_json(&json))
        } else {
            Value::text(&text)
        }
    }

    fn save(&self) -> Json {
        json!([self.enclosing.as_deref(), self.held.save()])
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.held = state.get(1).and_then(CountedMultiset::restored).ok_or_else(foreign_state)?;
        self.enclosing = state.get(0).and_then(Json::as_str).map(Arc::from);
        Ok(())
    }
}
