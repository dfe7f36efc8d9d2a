//! `#approximate:count(value, …)`, `#approximate:distinctCount(value, …)` and `#approximate:distinctCountEver(value, …)`:
//! how often the value of an event occurs, and how many different values there are.
//!
//! The numbers are exact, so both bounds are equal to them, whatever error the arguments allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::aggregators::state::{decode, encode};
use crate::columns::batch::EventKind;
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, Registry, StreamProcessor};

/// Different values that one processor counts.
const VALUES_MAX: usize = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Events with the value.
    Value,
    /// Different values in the window.
    Distinct,
    /// Different values so far.
    DistinctEver,
}

/// Registers the processors.
pub(super) fn register(registry: &mut Registry) {
    for (name, counted) in [
        ("count", Counted::Value),
        ("distinctCount", Counted::Distinct),
        ("distinctCountEver", Counted::DistinctEver),
    ] {
        registry.stream_processor(&format!("approximate:{name}"), move |args| build(name, counted, args));
    }
}

fn build(
    name: &'static str,
    counted: Counted,
    args: &[ArgumentType],
) -> Result<BoundStreamProcessor, String> {
    let form = format!("approximate:{name}(value [, relative.error [, confidence]])");
    let [value, accuracy @ ..] = args else { return Err(format!("expected {form}, found no parameters")) };
    if value.ty == FieldType::Object {
        return Err(format!("{form}: the value cannot be an object"));
    }
    let fraction =
        |a: &ArgumentType| a.constant.as_ref().and_then(Value::as_f64).is_some_and(|x| 0.0 < x && x < 1.0);
    if accuracy.len() > 2 || !accuracy.iter().all(fraction) {
        return Err(format!("{form}: the error and the confidence must be constants between 0 and 1"));
    }
    let added = ["", "LowerBound", "UpperBound"].map(|suffix| (format!("{name}{suffix}"), FieldType::Long));
    Ok((Arc::new(move || Box::new(Counts { counted, counts: BTreeMap::new() })), added.to_vec()))
}

struct Counts {
    counted: Counted,
    counts: BTreeMap<Key, u64>,
}

impl StreamProcessor for Counts {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        _now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let value = Key(args.first().cloned().unwrap_or_default());
        let known = self.counts.get(&value).copied().unwrap_or_default();
        let count = match (event.kind, self.counted) {
            (EventKind::Expired, Counted::DistinctEver) => known,
            (EventKind::Expired, _) => known.saturating_sub(1),
            _ => known + 1,
        };
        if known == 0 && self.counts.len() >= VALUES_MAX {
            return Err(EvalError::limit("approximate", VALUES_MAX, "different values"));
        }
        match count {
            0 => drop(self.counts.remove(&value)),
            count => drop(self.counts.insert(value, count)),
        }
        let result = match self.counted {
            Counted::Value => count,
            Counted::Distinct | Counted::DistinctEver => self.counts.len() as u64,
        };
        let result = Value::Long(i64::try_from(result).unwrap_or(i64::MAX));
        event.values.extend([result.clone(), result.clone(), result]);
        out.push(event);
        Ok(())
    }

    fn save(&self) -> Json {
        json!(self.counts.iter().map(|(key, count)| (encode(&key.0), count)).collect::<Vec<_>>())
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state("the saved state does not match these counts");
        let saved = Vec::<(Json, u64)>::deserialize(state).map_err(|_| wrong())?;
        let counts = saved.iter().map(|(key, count)| Some((Key(decode(key)?), *count)));
        self.counts = counts.collect::<Option<_>>().ok_or_else(wrong)?;
        Ok(())
    }
}
