//! `#graph:sizeOfLargestConnectedComponent(vertex1, vertex2, notify.update)`: events are edges of a graph that only grows.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::columns::batch::EventKind;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

const NAME: &str = "graph:sizeOfLargestConnectedComponent";
/// Vertices of one graph.
const VERTICES_MAX: usize = 10_000_000;

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let form = format!("{NAME}(vertex1, vertex2, notify.update)");
    let [one, two, always] = args else {
        return Err(format!("expected {form}, found {} parameters", args.len()));
    };
    if one.ty != FieldType::String || two.ty != FieldType::String {
        return Err(format!("{form}: the vertices must be strings"));
    }
    let Some(Value::Bool(always)) = always.constant else {
        return Err(format!("{form}: `notify.update` must be true or false"));
    };
    let made =
        move || Components { always, numbers: HashMap::new(), parents: vec![], sizes: vec![], largest: 0 };
    let added = vec![("sizeOfLargestConnectedComponent".to_owned(), FieldType::Long)];
    Ok((Arc::new(move || Box::new(made())), added))
}

/// Sets of connected vertices, joined by size.
struct Components {
    /// True to pass on every event, false for only those that change the result.
    always: bool,
    numbers: HashMap<Arc<str>, u32>,
    /// The vertex above each one; a vertex that is above itself stands for its set.
    parents: Vec<u32>,
    /// Vertices of the set, where a vertex stands for it.
    sizes: Vec<u32>,
    largest: u32,
}

impl Components {
    fn vertex(&mut self, name: &str) -> Result<u32, EvalError> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if self.parents.len() >= VERTICES_MAX {
            return Err(EvalError::limit(NAME, VERTICES_MAX, "vertices"));
        }
        let number = self.parents.len() as u32;
        self.numbers.insert(Arc::from(name), number);
        self.parents.push(number);
        self.sizes.push(1);
        self.largest = self.largest.max(1);
        Ok(number)
    }

    fn root(&mut self, mut vertex: u32) -> u32 {
        while self.parents[vertex as usize] != vertex {
            let above = self.parents[vertex as usize];
            self.parents[vertex as usize] = self.parents[above as usize];
            vertex = above;
        }
        vertex
    }

    fn join(&mut self, one: u32, two: u32) {
        let (one, two) = (self.root(one), self.root(two));
        if one == two {
            return;
        }
        let is_smaller = self.sizes[one as usize] < self.sizes[two as usize];
        let (above, below) = if is_smaller { (two, one) } else { (one, two) };
        self.parents[below as usize] = above;
        self.sizes[above as usize] += self.sizes[below as usize];
        self.largest = self.largest.max(self.sizes[above as usize]);
    }
}

impl StreamProcessor for Components {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        _now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind != EventKind::Current {
            return Ok(());
        }
        let name = |i: usize| {
            let name = args.get(i).and_then(Value::as_str);
            name.ok_or_else(|| EvalError::null(format!("{NAME}: `vertex{}`", i + 1)))
        };
        let (one, two) = (name(0)?, name(1)?);
        let before = self.largest;
        let (one, two) = (self.vertex(one)?, self.vertex(two)?);
        self.join(one, two);
        if self.always || self.largest != before {
            event.values.push(Value::Long(self.largest.into()));
            out.push(event);
        }
        Ok(())
    }

    fn save(&self) -> Json {
        let mut names: Vec<(&str, u32)> = self.numbers.iter().map(|(name, n)| (&**name, *n)).collect();
        names.sort_unstable_by_key(|(_, number)| *number);
        let names: Vec<&str> = names.into_iter().map(|(name, _)| name).collect();
        json!({ "names": names, "parents": self.parents })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state(format!("the saved state does not match {NAME}"));
        let saved = SavedComponents::deserialize(state).map_err(|_| wrong())?;
        let known = saved.parents.len();
        if saved.names.len() != known || saved.parents.iter().any(|above| *above as usize >= known) {
            return Err(wrong());
        }
        *self =
            Self { always: self.always, numbers: HashMap::new(), parents: vec![], sizes: vec![], largest: 0 };
        for name in &saved.names {
            self.vertex(name)?;
        }
        for (vertex, above) in saved.parents.into_iter().enumerate() {
            self.join(vertex as u32, above);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct SavedComponents {
    names: Vec<String>,
    parents: Vec<u32>,
}
