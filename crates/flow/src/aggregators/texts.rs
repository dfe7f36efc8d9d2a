//! `str:groupConcat`.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::tally::Tally;
use super::{add, copies, flag, foreign};
use crate::expr::Failure;
use crate::functions::library::constant_text;
use crate::registry::{Aggregator, Registry};
use crate::value::{Key, Value};

pub(super) fn register(registry: &mut Registry) {
    let form = "string text, string separator?, const bool distinct?, const string order? -> string";
    add(registry, "str:groupConcat", &[form], |args| {
        let order = match constant_text(args, 3).map(str::to_ascii_uppercase).as_deref() {
            None => Order::Arrival,
            Some("ASC") => Order::Ascending,
            Some("DESC") => Order::Descending,
            Some(other) => return Err(format!("there is no order `{other}`; there are ASC and DESC")),
        };
        let separator = Arc::from(constant_text(args, 1).unwrap_or(","));
        copies(GroupConcat { held: Tally::default(), separator, distinct: flag(args, 2), order })
    });
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Arrival,
    Ascending,
    Descending,
}

/// The texts held, one behind the other. Equal ones stand together, where the first of them came.
#[derive(Clone)]
struct GroupConcat {
    held: Tally,
    /// As the last event had it.
    separator: Arc<str>,
    distinct: bool,
    order: Order,
}

impl GroupConcat {
    fn separated(&mut self, args: &[Value]) {
        if let Some(Value::Str(separator)) = args.get(1) {
            self.separator = separator.clone();
        }
    }
}

impl Aggregator for GroupConcat {
    fn add(&mut self, args: &[Value]) -> Result<(), Failure> {
        self.separated(args);
        match args[0].is_null() {
            true => Ok(()),
            false => self.held.add(Key(args[0].clone())),
        }
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), Failure> {
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
            Order::Arrival => self.held.in_order().for_each(|(k, n)| put(&mut texts, k, times(n))),
            Order::Ascending => self.held.sorted().for_each(|(k, n)| put(&mut texts, k, times(n))),
            Order::Descending => self.held.sorted().rev().for_each(|(k, n)| put(&mut texts, k, times(n))),
        }
        Value::text(&texts.join(&self.separator))
    }

    fn save(&self) -> Json {
        json!([&*self.separator, self.held.save()])
    }

    fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        let separator = state.get(0).and_then(Json::as_str).ok_or_else(foreign)?;
        self.held = state.get(1).and_then(Tally::restored).ok_or_else(foreign)?;
        self.separator = separator.into();
        Ok(())
    }
}
