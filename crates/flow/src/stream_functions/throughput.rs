//! `#throughput:throughput(time, …, kind)`: passes events on. In Siddhi it measures them for a file; here their rates are
//! measured in any case.

use std::sync::Arc;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Call, Query};
use tidemill_types::FieldType;

use super::calls;
use crate::columns::value::Value;
use crate::compile::compiler::call_name;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamFunction, StreamFunction};

/// Name in queries.
pub(super) const NAME: &str = "throughput:throughput";

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    let form = "throughput:throughput(time, …, 'throughput|latency|both')";
    let is_kind = |a: &ArgumentType| {
        let text = a.constant.as_ref().and_then(Value::as_str);
        text.is_some_and(|text| ["throughput", "latency", "both"].contains(&text))
    };
    if args.first().is_none_or(|time| time.ty != FieldType::Long) || !args.iter().any(is_kind) {
        return Err(format!("expected {form}: a long first, and one of these three words"));
    }
    Ok((Arc::new(PassOn), vec![]))
}

/// Returns warnings for calls of it in a query.
pub(crate) fn without_effect(query: &Query) -> Vec<Diagnostic> {
    let warning = |call: &Call| {
        let message = "`throughput:throughput` measures nothing here: it passes events on";
        Diagnostic::warning("F0420", call.span, message).help(
            "the rates of streams and queries are in system.queries and in the metrics, for instance \
             tidemill_query_emitted_events_total",
        )
    };
    calls(query).filter(|call| call_name(call) == NAME).map(warning).collect()
}

#[derive(Debug)]
struct PassOn;

impl StreamFunction for PassOn {
    fn call(&self, _: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        Ok(vec![vec![]])
    }
}
