//! `#log(…)`: writes a line for each event and passes it on.

use std::sync::Arc;

use tidemill_types::{FieldType, did_you_mean};

use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamFunction, EventRef, StreamFunction};

const FORM: &str = "log([priority,] [message] [, with.event])";

/// Priority of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The line is not written.
    Off,
    /// `ERROR`, `FATAL`
    Error,
    /// `WARN`
    Warn,
    /// `INFO`
    Info,
    /// `DEBUG`
    Debug,
    /// `TRACE`
    Trace,
}

impl Priority {
    const NAMES: [&str; 7] = ["INFO", "DEBUG", "WARN", "FATAL", "ERROR", "OFF", "TRACE"];

    /// Parses a priority; case is ignored. Errors: it is unknown; suggests a similar name.
    pub fn parse(name: &str) -> Result<Self, String> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "INFO" => Self::Info,
            "DEBUG" => Self::Debug,
            "WARN" => Self::Warn,
            "FATAL" | "ERROR" => Self::Error,
            "OFF" => Self::Off,
            "TRACE" => Self::Trace,
            _ => return Err(format!("unknown priority `{name}`{}", did_you_mean(name, Self::NAMES))),
        })
    }

    /// Writes a line.
    pub fn write(self, line: &str) {
        match self {
            Self::Off => {}
            Self::Error => tracing::error!(target: "siddhi", "{line}"),
            Self::Warn => tracing::warn!(target: "siddhi", "{line}"),
            Self::Info => tracing::info!(target: "siddhi", "{line}"),
            Self::Debug => tracing::debug!(target: "siddhi", "{line}"),
            Self::Trace => tracing::trace!(target: "siddhi", "{line}"),
        }
    }
}

/// Formats an event: its timestamp and its attributes.
fn format_event(columns: &[Column], row: usize, time: i64) -> String {
    let values: Vec<String> = columns.iter().map(|c| c.get(row).to_string()).collect();
    format!("{time} [{}]", values.join(", "))
}

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    let (with_event, texts) = match args.split_last() {
        Some((last, rest)) if last.ty == FieldType::Bool => (Some(rest.len()), rest),
        _ => (None, args),
    };
    if args.last().is_some_and(|last| last.ty == FieldType::Bool && last.constant.is_none()) {
        return Err(format!("{FORM}: `with.event` must be a constant, true or false"));
    }
    let wrong = || format!("expected {FORM}: strings, then true or false");
    if texts.len() > 2 || texts.iter().any(|t| t.ty != FieldType::String) {
        return Err(wrong());
    }
    let constant = |arg: &ArgumentType| arg.constant.as_ref().and_then(|c| c.as_str().map(str::to_owned));
    let (priority, message) = match texts {
        [] => (Priority::Info, None),
        [message] => match constant(message).and_then(|name| Priority::parse(&name).ok()) {
            // a single string that names a priority, as in log('DEBUG', true)
            Some(priority) if with_event.is_some() => (priority, None),
            _ => (Priority::Info, Some(0)),
        },
        [priority, ..] => {
            let name =
                constant(priority).ok_or_else(|| format!("{FORM}: the priority must be a constant"))?;
            (Priority::parse(&name)?, Some(1))
        }
    };
    Ok((Arc::new(LogFunction { priority, message, with_event }), vec![]))
}

#[derive(Debug)]
struct LogFunction {
    priority: Priority,
    /// Index of the argument with the message.
    message: Option<usize>,
    /// Index of the argument that decides whether the event is logged; without it, it is.
    with_event: Option<usize>,
}

impl StreamFunction for LogFunction {
    fn has_side_effects(&self) -> bool {
        true
    }

    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        self.priority
            .write(&self.message.and_then(|i| args.get(i)).map(Value::to_string).unwrap_or_default());
        Ok(vec![vec![]])
    }

    fn call_on(&self, args: &[Value], event: &EventRef<'_>) -> Result<Vec<Vec<Value>>, EvalError> {
        let message = self.message.and_then(|i| args.get(i)).map(Value::to_string);
        let with_event = self.with_event.and_then(|i| args.get(i)).is_none_or(Value::is_true);
        let event = with_event.then(|| format_event(event.columns, event.row, event.time));
        let parts: Vec<String> = message.into_iter().chain(event).collect();
        self.priority.write(&parts.join(", "));
        Ok(vec![vec![]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ArgumentType {
        ArgumentType { ty: FieldType::String, constant: Some(Value::text(text)) }
    }

    fn yes() -> ArgumentType {
        ArgumentType { ty: FieldType::Bool, constant: Some(Value::Bool(true)) }
    }

    #[test]
    fn forms_are_checked() {
        let attribute = ArgumentType { ty: FieldType::String, constant: None };
        for good in [
            vec![],
            vec![yes()],
            vec![attribute.clone()],
            vec![text("m"), yes()],
            vec![text("warn"), text("m")],
            vec![text("WARN"), attribute.clone(), yes()],
        ] {
            assert!(build(&good).is_ok(), "{good:?}");
        }
        for (wrong, why) in [
            (vec![yes(), text("m")], "expected log("),
            (vec![text("LOUD"), text("m")], "unknown priority `LOUD`"),
            (vec![attribute.clone(), text("m")], "the priority must be a constant"),
            (vec![text("INFO"), text("m"), text("m")], "expected log("),
        ] {
            assert!(build(&wrong).unwrap_err().contains(why), "{wrong:?}");
        }
    }
}
