//! `map:` Functions on maps. Mutating functions change the map in place, visibly to all holders of it, and
//! return it.
//!
//! Strings made from maps list the entries in key order; Siddhi 5.1 lists them in hash table order.

use std::collections::BTreeMap;

use super::json_text::{parse_lenient, plain_json};
use super::library::{NamespaceRegistrar, NullPolicy, ScalarResult, constant_text, text};
use super::object::{Map, check_insertable, equal, is_map, map, new_map};
use super::xml;
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::expr::ArgumentType;

pub(super) fn register(maps: &mut NamespaceRegistrar<'_>) {
    register_mutators(maps);
    register_readers(maps);
    register_text_formats(maps);
}

fn object(map: Map) -> ScalarResult {
    Ok(Value::Object(OpaqueValue::Map(map)))
}

fn key(args: &[Value], i: usize) -> Key {
    Key(args[i].clone())
}

/// Condition on which an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutMode {
    Always,
    IfAbsent,
    IfPresent,
}

fn put(into: &Map, key: Key, value: Value, when: PutMode) -> Result<(), String> {
    check_insertable(&key.0, into)?;
    check_insertable(&value, into)?;
    let mut entries = into.lock();
    let wanted = match when {
        PutMode::Always => true,
        PutMode::IfAbsent => entries.get(&key).is_none_or(Value::is_null),
        PutMode::IfPresent => entries.contains_key(&key),
    };
    if wanted {
        entries.insert(key, value);
    }
    Ok(())
}

fn put_one(args: &[Value], when: PutMode) -> ScalarResult {
    let into = map(args, 0)?;
    put(&into, key(args, 1), args[2].clone(), when)?;
    object(into)
}

fn put_all(args: &[Value], when: PutMode) -> ScalarResult {
    let (into, from) = (map(args, 0)?, map(args, 1)?);
    let from = from.lock().clone();
    from.into_iter().try_for_each(|(k, v)| put(&into, k, v, when))?;
    object(into)
}

fn register_mutators(maps: &mut NamespaceRegistrar<'_>) {
    maps.build("create", &["any key* -> object"], NullPolicy::Pass, |args: &[ArgumentType]| {
        if args.len() % 2 == 1 {
            return Err("expected pairs of a key and a value, found a key without a value".into());
        }
        Ok(Box::new(|args, _| {
            let entries = args.chunks(2).map(|pair| (Key(pair[0].clone()), pair[1].clone()));
            new_map(entries.collect())
        }))
    });
    let entry = ["object map, any key, any value -> object"];
    maps.add("put", &entry, NullPolicy::Pass, |args| put_one(args, PutMode::Always));
    maps.add("putIfAbsent", &entry, NullPolicy::Pass, |args| put_one(args, PutMode::IfAbsent));
    maps.add("replace", &entry, NullPolicy::Pass, |args| put_one(args, PutMode::IfPresent));
    let two = ["object map, object from -> object"];
    maps.add("putAll", &two, NullPolicy::Fail, |args| put_all(args, PutMode::Always));
    maps.add("replaceAll", &two, NullPolicy::Fail, |args| put_all(args, PutMode::IfPresent));
    maps.add("remove", &["object map, any key -> object"], NullPolicy::Pass, |args| {
        let from = map(args, 0)?;
        from.lock().remove(&key(args, 1));
        object(from)
    });
    maps.add("clear", &["object map -> object"], NullPolicy::Fail, |args| {
        let map = map(args, 0)?;
        map.lock().clear();
        object(map)
    });
    maps.add("clone", &["object map -> object"], NullPolicy::Fail, |args| {
        let entries = map(args, 0)?.lock().clone();
        Ok(Value::Object(OpaqueValue::map(entries)))
    });
    maps.add(
        "combineByKey",
        &["object map, object other, object more* -> object"],
        NullPolicy::Fail,
        |args| {
            let maps = (0..args.len())
                .map(|i| Ok(map(args, i)?.lock().clone()))
                .collect::<Result<Vec<_>, String>>()?;
            let mut combined = BTreeMap::new();
            for key in maps.iter().flat_map(BTreeMap::keys) {
                let values = maps.iter().map(|m| m.get(key).cloned().unwrap_or_default()).collect();
                combined.insert(key.clone(), Value::Object(OpaqueValue::list(values)));
            }
            new_map(combined)
        },
    );
}

fn register_readers(maps: &mut NamespaceRegistrar<'_>) {
    maps.add("get", &["object map, any key, any otherwise? -> object"], NullPolicy::Pass, |args| {
        let found = map(args, 0)?.lock().get(&key(args, 1)).cloned();
        Ok(found.or_else(|| args.get(2).cloned()).unwrap_or_default())
    });
    maps.add("containsKey", &["object map, any key -> bool"], NullPolicy::Pass, |args| {
        Ok(Value::Bool(map(args, 0)?.lock().contains_key(&key(args, 1))))
    });
    maps.add("containsValue", &["object map, any value -> bool"], NullPolicy::Pass, |args| {
        let entries = map(args, 0)?.lock().clone();
        Ok(Value::Bool(entries.values().any(|v| equal(v, &args[1]))))
    });
    maps.add("isMap", &["any x -> bool"], NullPolicy::Pass, |args| Ok(Value::Bool(is_map(&args[0]))));
    maps.add("isEmpty", &["object map -> bool"], NullPolicy::Fail, |args| {
        Ok(Value::Bool(map(args, 0)?.lock().is_empty()))
    });
    maps.add("size", &["object map -> int"], NullPolicy::Fail, |args| {
        Ok(Value::Int(map(args, 0)?.lock().len() as i32))
    });
    maps.add("keys", &["object map -> object"], NullPolicy::Fail, |args| {
        let keys = map(args, 0)?.lock().keys().map(|k| k.0.clone()).collect();
        Ok(Value::Object(OpaqueValue::list(keys)))
    });
    maps.add("values", &["object map -> object"], NullPolicy::Fail, |args| {
        let values = map(args, 0)?.lock().values().cloned().collect();
        Ok(Value::Object(OpaqueValue::list(values)))
    });
}

fn register_text_formats(maps: &mut NamespaceRegistrar<'_>) {
    maps.add("toJSON", &["object map -> string"], NullPolicy::Fail, |args| {
        let map = map(args, 0)?;
        Ok(Value::text(&plain_json(&Value::Object(OpaqueValue::Map(map)))?))
    });
    maps.add("createFromJSON", &["string json -> object"], NullPolicy::Fail, |args| {
        let read = parse_lenient(text(args, 0)?)?;
        if !is_map(&read) {
            return Err(format!("`{}` is not a JSON object", args[0]));
        }
        Ok(read)
    });
    maps.build("toXML", &["object map, const string root? -> string"], NullPolicy::Fail, |args| {
        let root = constant_text(args, 1).map(str::to_owned);
        Ok(Box::new(move |args, _| {
            let inner = xml::write(&map(args, 0)?.lock());
            Ok(Value::text(&match &root {
                Some(root) => format!("<{root}>{inner}</{root}>"),
                None => inner,
            }))
        }))
    });
    maps.add("createFromXML", &["string xml -> object"], NullPolicy::Fail, |args| xml::read(text(args, 0)?));
}
