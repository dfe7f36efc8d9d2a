//! Stream functions that come built in: they add attributes to events, and may make none or several of one.

mod json;
mod log;

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::catalog::Attributes;
use crate::expr::{Failure, compile::rank};
use crate::registry::{Arg, Registry, StreamFunction};
use crate::value::{Object, Value};
pub(crate) use log::{Priority, shown};

/// Registers all of them.
pub fn register(registry: &mut Registry) {
    registry.stream_function("log", log::build);
    registry.stream_function("pol2Cart", pol2cart);
    registry.stream_function("str:tokenize", text_tokens);
    registry.stream_function("json:tokenize", |args| json::build("json:tokenize", args));
    registry.stream_function("json:tokenizeAsObject", |args| json::build("json:tokenizeAsObject", args));
    registry.stream_function("list:tokenize", |args| {
        objects("list:tokenize(list, …)", args)?;
        let added = vec![("index".into(), FieldType::Int), ("value".into(), FieldType::Object)];
        Ok((Arc::new(ListItems), added))
    });
    registry.stream_function("map:tokenize", |args| {
        objects("map:tokenize(map, …)", args)?;
        let added = vec![("key".into(), FieldType::Object), ("value".into(), FieldType::Object)];
        Ok((Arc::new(MapEntries), added))
    });
}

fn objects(form: &str, args: &[Arg]) -> Result<(), String> {
    match !args.is_empty() && args.iter().all(|a| a.ty == FieldType::Object) {
        true => Ok(()),
        false => Err(format!("{form} wants objects")),
    }
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

fn text_tokens(args: &[Arg]) -> Result<(Arc<dyn StreamFunction>, Attributes), String> {
    let form = "str:tokenize(text, regex [, distinct])";
    match args {
        [a, b] if a.ty == FieldType::String && b.ty == FieldType::String => {}
        [a, b, c] if a.ty == FieldType::String && b.ty == FieldType::String && c.ty == FieldType::Bool => {}
        _ => return Err(format!("{form} wants two texts and perhaps a bool")),
    }
    let constant = match args[1].constant.as_ref().and_then(Value::as_str) {
        Some(text) => Some(regex::Regex::new(text).map_err(|e| format!("{form}: {e}"))?),
        None => None,
    };
    Ok((Arc::new(Tokens { constant }), vec![("token".into(), FieldType::String)]))
}

/// The parts of a text.
#[derive(Debug)]
struct Tokens {
    constant: Option<regex::Regex>,
}

impl StreamFunction for Tokens {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, Failure> {
        let (Some(text), Some(pattern)) = (args[0].as_str(), args[1].as_str()) else { return Ok(vec![]) };
        let made;
        let regex = match &self.constant {
            Some(regex) => regex,
            None => {
                made = regex::Regex::new(pattern).map_err(|e| Failure(format!("str:tokenize: {e}")))?;
                &made
            }
        };
        let distinct = args.get(2).is_some_and(Value::is_true);
        let mut tokens: Vec<&str> = Vec::new();
        for token in regex.split(text) {
            if !distinct || !tokens.contains(&token) {
                tokens.push(token);
            }
        }
        Ok(tokens.into_iter().map(|t| vec![Value::text(t)]).collect())
    }
}

/// The elements of lists.
#[derive(Debug)]
struct ListItems;

impl StreamFunction for ListItems {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, Failure> {
        let mut all = Vec::new();
        for list in args {
            match list {
                Value::Object(Object::List(list)) => {
                    let items = list.lock();
                    all.extend(items.iter().enumerate().map(|(i, v)| vec![Value::Int(i as i32), v.clone()]));
                }
                Value::Null => {}
                other => return Err(Failure(format!("list:tokenize wants a list, not {other}"))),
            }
        }
        Ok(all)
    }
}

/// The entries of maps.
#[derive(Debug)]
struct MapEntries;

impl StreamFunction for MapEntries {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, Failure> {
        let mut all = Vec::new();
        for map in args {
            match map {
                Value::Object(Object::Map(map)) => {
                    all.extend(map.lock().iter().map(|(k, v)| vec![k.0.clone(), v.clone()]));
                }
                Value::Null => {}
                other => return Err(Failure(format!("map:tokenize wants a map, not {other}"))),
            }
        }
        Ok(all)
    }
}
