//! Built-in stream functions: they add attributes to events and may turn an event into none or several.

mod data_sources;
mod json;
mod log;
pub(crate) mod pmml;
mod throughput;
mod tokens;

use std::sync::Arc;

use tidemill_lang::siddhi::ast::{Call, Handler, HandlerKind, Input, Query};
use tidemill_types::FieldType;

use crate::catalog::Attributes;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{Registry, StreamFunction};

pub(crate) use data_sources::unknown_data_sources;
pub(crate) use log::Priority;
pub use pmml::model_paths;
pub(crate) use throughput::without_effect;

/// Registers all built-in stream functions.
pub fn register(registry: &mut Registry) {
    registry.stream_function("log", log::build);
    registry.stream_function("pol2Cart", pol2cart);
    registry.stream_function(throughput::NAME, throughput::build);
    registry.stream_function("str:tokenize", tokens::text);
    registry.stream_function("json:tokenize", |args| json::build("json:tokenize", args));
    registry.stream_function("json:tokenizeAsObject", |args| json::build("json:tokenizeAsObject", args));
    registry.stream_function("list:tokenize", tokens::lists);
    registry.stream_function("map:tokenize", tokens::maps);
}

/// Returns the calls of stream functions in a query.
fn calls(query: &Query) -> impl Iterator<Item = &Call> {
    let handlers: Vec<&Handler> = match &query.input {
        Input::Stream(input) => input.handlers.iter().chain(&input.after).collect(),
        Input::Join(join) => join.left.input.handlers.iter().chain(&join.right.input.handlers).collect(),
        Input::State(_) | Input::Nested(_) => vec![],
    };
    handlers.into_iter().filter_map(|handler| match &handler.kind {
        HandlerKind::Function(call) => Some(call),
        HandlerKind::Filter(_) => None,
    })
}

fn pol2cart(args: &[ArgumentType]) -> Result<(Arc<dyn StreamFunction>, Attributes), String> {
    if !(2..=3).contains(&args.len()) || args.iter().any(|a| a.ty != FieldType::Double) {
        return Err(
            "pol2Cart(theta, rho [, z]) needs two or three doubles: write convert(a, 'double')".into()
        );
    }
    let names = ["x", "y", "z"].into_iter().take(args.len());
    Ok((Arc::new(Cartesian), names.map(|n| (n.to_owned(), FieldType::Double)).collect()))
}

/// Conversion from polar to Cartesian coordinates, with the angle in degrees.
#[derive(Debug)]
struct Cartesian;

impl StreamFunction for Cartesian {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        let number = |i: usize, what: &str| {
            let number = args.get(i).and_then(Value::as_f64);
            number.ok_or_else(|| EvalError::null(format!("pol2Cart: `{what}`")))
        };
        let (theta, rho) = (number(0, "theta")?.to_radians(), number(1, "rho")?);
        let mut added = vec![Value::Double(rho * theta.cos()), Value::Double(rho * theta.sin())];
        added.extend(args.get(2).cloned());
        Ok(vec![added])
    }
}
