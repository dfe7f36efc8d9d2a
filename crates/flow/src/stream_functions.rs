//! Stream functions that come built in: they add attributes to events, and may make none or several of one.

mod json;
mod log;
mod tokens;

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::catalog::Attributes;
use crate::expr::{Failure, compile::rank};
use crate::registry::{Arg, Registry, StreamFunction};
use crate::value::Value;
pub(crate) use log::{Priority, shown};

/// Registers all of them.
pub fn register(registry: &mut Registry) {
    registry.stream_function("log", log::build);
    registry.stream_function("pol2Cart", pol2cart);
    registry.stream_function("str:tokenize", tokens::text);
    registry.stream_function("json:tokenize", |args| json::build("json:tokenize", args));
    registry.stream_function("json:tokenizeAsObject", |args| json::build("json:tokenizeAsObject", args));
    registry.stream_function("list:tokenize", tokens::lists);
    registry.stream_function("map:tokenize", tokens::maps);
}

fn pol2cart(args: &[Arg]) -> Result<(Arc<dyn StreamFunction>, Attributes), String> {
    if !(2..=3).contains(&args.len()) || args.iter().any(|a| rank(a.ty).is_none()) {
        return Err("pol2Cart(theta, rho [, z]) wants two or three numbers".into());
    }
    let names = ["x", "y", "z"].into_iter().take(args.len());
    Ok((Arc::new(Cartesian), names.map(|n| (n.to_owned(), FieldType::Double)).collect()))
}

/// Polar to Cartesian coordinates, the angle in degrees.
#[derive(Debug)]
struct Cartesian;

impl StreamFunction for Cartesian {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, Failure> {
        let number = |i: usize| args.get(i).and_then(Value::as_f64);
        let point = number(0).zip(number(1)).map(|(theta, rho)| {
            let theta = theta.to_radians();
            (rho * theta.cos(), rho * theta.sin())
        });
        let mut added = match point {
            Some((x, y)) => vec![Value::Double(x), Value::Double(y)],
            None => vec![Value::Null, Value::Null],
        };
        if args.len() > 2 {
            added.push(number(2).map_or(Value::Null, Value::Double));
        }
        Ok(vec![added])
    }
}
