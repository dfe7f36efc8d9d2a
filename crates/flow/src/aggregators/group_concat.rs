//! `str:groupConcat`.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::counted_multiset::CountedMultiset;
use super::{add, cloning_constructor, flag, foreign_state};
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::functions::library::constant_text;
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    let form = "string text, string separator?, const bool distinct?, const string order? -> string";
    add(registry, "str:groupConcat", &[form], |args| {
        let order = match constant_text(args, 3).map(str::to_ascii_uppercase).as_deref() {
            None => ConcatOrder::Arrival,
            Some("ASC") => ConcatOrder::Ascending,
            Some("DESC") => ConcatOrder::Descending,
            Some(other) => return Err(format!("unknown order `{other}`: expected ASC or DESC")),
        };
        let separator = Arc::from(constant_text(args, 1).unwrap_or(","));
        cloning_constructor(GroupConcat {
            held: CountedMultiset::default(),
            separator,
            distinct: flag(args, 2),
            order,
        })
    });
}

#[derive(Debug, Clone, Copy)]
enum ConcatOrder {
    Arrival,
    Ascending,
    Descending,
}

/// Concatenated strings. Equal strings are adjacent, at the position of the first of them.
#[derive(Clone)]
struct GroupConcat {
    held: CountedMultiset,
    /// The separator of the last event.
    separator: Arc<str>,
    distinct: bool,
    order: ConcatOrder,
}

impl GroupConcat {
    fn separated(&mut self, args: &[Value]) {
        if let Some(Value::Str(separator)) = args.get(1) {
            self.separator = separator.clone();
        }
    }
}

impl Aggregator for GroupConcat {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.separated(args);
        match args[0].is_null() {
            true => Ok(()),
            false => self.held.add(Key(args[0].clone())),
        }
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.separated(args);
        self.held.remove(&Key(args[0].clone()));
        Ok(())
    }

    fn reset(&mut self) {
        self.held.clear();
    }

    fn value(&self) -> Value {
        let mut texts: Vec<&str> = Vec::new();
        fn put<'k>(texts: &mut Vec<&'k str>, key: &'k Key, count: u64) {
            texts.extend(std::iter::repeat_n(key.0.as_str().unwrap_or(""), count as usize));
        }
        let times = |count| if self.distinct { 1 } else { count };
        match self.order {
            ConcatOrder::Arrival => self.held.in_order().for_each(|(k, n)| put(&mut texts, k, times(n))),
            ConcatOrder::Ascending => self.held.sorted().for_each(|(k, n)| put(&mut texts, k, times(n))),
            ConcatOrder::Descending => {
                self.held.sorted().rev().for_each(|(k, n)| put(&mut texts, k, times(n)))
            }
        }
        Value::text(&texts.join(&self.separator))
    }

    fn save(&self) -> Json {
        json!([&*self.separator, self.held.save()])
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let separator = state.get(0).and_then(Json::as_str).ok_or_else(foreign_state)?;
        self.held = state.get(1).and_then(CountedMultiset::restored).ok_or_else(foreign_state)?;
        self.separator = separator.into();
        Ok(())
    }
}
