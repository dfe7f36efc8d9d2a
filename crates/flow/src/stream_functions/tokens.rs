//! `#str:tokenize`, `#list:tokenize`, `#map:tokenize`: emit an event for each part of a string, of lists or
//! of maps.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::FieldType;

use crate::columns::value::{Key, OpaqueValue, Value};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::functions::compile_cache::CompileCache;
use crate::functions::java::java_regex::{JavaRegex, MatchMode, patterns};
use crate::functions::object;
use crate::registry::{BoundStreamFunction, StreamFunction};

pub(super) fn text(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    let types: Vec<FieldType> = args.iter().map(|a| a.ty).collect();
    match types.as_slice() {
        [FieldType::String, FieldType::String] | [FieldType::String, FieldType::String, FieldType::Bool] => {}
        _ => {
            return Err(
                "str:tokenize(text, regex [, distinct]) needs two strings and optionally a bool".into()
            );
        }
    }
    let patterns = patterns(args, 1, MatchMode::Any).map_err(|why| format!("str:tokenize: {why}"))?;
    Ok((Arc::new(TokenizeText { patterns }), vec![("token".into(), FieldType::String)]))
}

pub(super) fn lists(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    objects("list:tokenize(list, …)", args)?;
    let added = vec![("index".into(), FieldType::Int), ("value".into(), FieldType::Object)];
    Ok((Arc::new(TokenizeLists), added))
}

pub(super) fn maps(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    objects("map:tokenize(map, …)", args)?;
    let added = vec![("key".into(), FieldType::Object), ("value".into(), FieldType::Object)];
    Ok((Arc::new(TokenizeMaps), added))
}

fn objects(form: &str, args: &[ArgumentType]) -> Result<(), String> {
    match !args.is_empty() && args.iter().all(|a| a.ty == FieldType::Object) {
        true => Ok(()),
        false => Err(format!("{form} needs objects")),
    }
}

/// Splits a string as `str:split` does. Each part is a chunk of its own, so that aggregates see them one
/// after the other.
struct TokenizeText {
    patterns: CompileCache<JavaRegex>,
}

impl fmt::Debug for TokenizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("str:tokenize")
    }
}

impl StreamFunction for TokenizeText {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        let wrong = |why: String| EvalError::argument(format!("str:tokenize: {why}"));
        let (Some(text), Some(pattern)) = (args[0].as_str(), args[1].as_str()) else {
            return Err(wrong(format!("`{}` is null", if args[0].is_null() { "text" } else { "regex" })));
        };
        let parts = self.patterns.get(pattern).and_then(|p| p.split(text)).map_err(wrong)?;
        let distinct = args.get(2).is_some_and(Value::is_true);
        let mut tokens: Vec<&str> = Vec::new();
        for token in parts {
            if !distinct || !tokens.contains(&token) {
                tokens.push(token);
            }
        }
        Ok(tokens.into_iter().map(|t| vec![Value::text(t)]).collect())
    }

    fn emits_separate_chunks(&self) -> bool {
        true
    }
}

/// Emits the items of a list with their indexes; for several lists, a list of the items at each index, null
/// where one is shorter.
#[derive(Debug)]
struct TokenizeLists;

impl StreamFunction for TokenizeLists {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        let wrong = |why: String| EvalError::argument(format!("list:tokenize: {why}"));
        let lists = (0..args.len()).map(|i| Ok(object::list(args, i)?.lock().clone()));
        let lists: Vec<Vec<Value>> = lists.collect::<Result<_, String>>().map_err(wrong)?;
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let at = |i: usize| value_or_list(lists.iter().map(|list| list.get(i).cloned()));
        Ok((0..longest).map(|i| vec![Value::Int(i as i32), at(i)]).collect())
    }
}

/// Emits the entries of a map; for several maps, a list of the values of each key, null where a map lacks it.
#[derive(Debug)]
struct TokenizeMaps;

impl StreamFunction for TokenizeMaps {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        let wrong = |why: String| EvalError::argument(format!("map:tokenize: {why}"));
        let maps = (0..args.len()).map(|i| Ok(object::map(args, i)?.lock().clone()));
        let maps: Vec<_> = maps.collect::<Result<_, String>>().map_err(wrong)?;
        let mut keys: Vec<&Key> = maps.iter().flat_map(|map| map.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let of = |key: &Key| value_or_list(maps.iter().map(|map| map.get(key).cloned()));
        Ok(keys.into_iter().map(|key| vec![key.0.clone(), of(key)]).collect())
    }
}

/// Returns a single value as it is, several as a list.
fn value_or_list(values: impl Iterator<Item = Option<Value>>) -> Value {
    let mut values: Vec<Value> = values.map(Option::unwrap_or_default).collect();
    match values.len() {
        1 => values.remove(0),
        _ => Value::Object(OpaqueValue::List(Arc::new(Mutex::new(values)))),
    }
}
