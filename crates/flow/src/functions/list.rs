//! `list:` Functions on lists. Mutating functions change the list in place, visibly to all holders of it, and
//! return it.

use std::cmp::Ordering;

use super::library::{NamespaceRegistrar, NullPolicy, ScalarResult, constant_text, int};
use super::object::{List, check_insertable, equal, is_list, list, new_list};
use crate::columns::value::{OpaqueValue, Value};

pub(super) fn register(lists: &mut NamespaceRegistrar<'_>) {
    register_mutators(lists);
    register_readers(lists);
}

fn object(list: List) -> ScalarResult {
    Ok(Value::Object(OpaqueValue::List(list)))
}

/// Returns argument `i` as an index below `end`.
fn place(args: &[Value], i: usize, end: usize) -> Result<usize, String> {
    let index = int(args, i)?;
    let place = usize::try_from(index).ok().filter(|p| *p < end);
    place.ok_or_else(|| format!("list index {index} is out of bounds"))
}

fn register_mutators(lists: &mut NamespaceRegistrar<'_>) {
    lists.add("create", &["any x* -> object"], NullPolicy::Pass, |args| match args {
        [Value::Null] => Ok(Value::Object(OpaqueValue::list(vec![]))),
        _ => new_list(args.to_vec()),
    });
    lists.add("add", &["object list, any x, int index? -> object"], NullPolicy::Pass, |args| {
        let into = list(args, 0)?;
        check_insertable(&args[1], &into)?;
        let mut items = into.lock();
        let at = if args.len() == 3 { place(args, 2, items.len() + 1)? } else { items.len() };
        items.insert(at, args[1].clone());
        drop(items);
        object(into)
    });
    lists.add("addAll", &["object list, object more, bool distinct? -> object"], NullPolicy::Fail, |args| {
        let (into, more) = (list(args, 0)?, list(args, 1)?);
        let more = more.lock().clone();
        more.iter().try_for_each(|x| check_insertable(x, &into))?;
        let distinct = args.get(2).is_some_and(Value::is_true);
        let mut items = into.lock().clone();
        for x in more {
            if !distinct || !items.iter().any(|held| equal(held, &x)) {
                items.push(x);
            }
        }
        *into.lock() = items;
        object(into)
    });
    lists.add("clear", &["object list -> object"], NullPolicy::Fail, |args| {
        let list = list(args, 0)?;
        list.lock().clear();
        object(list)
    });
    lists.add("clone", &["object list -> object"], NullPolicy::Fail, |args| {
        let items = list(args, 0)?.lock().clone();
        Ok(Value::Object(OpaqueValue::list(items)))
    });
    lists.add("remove", &["object list, any x -> object"], NullPolicy::Pass, |args| {
        let list = list(args, 0)?;
        let found = find(&list, &args[1]);
        if let Some(at) = found {
            list.lock().remove(at);
        }
        object(list)
    });
    lists.add("removeAll", &["object list, object those -> object"], NullPolicy::Fail, |args| {
        retain_items(args, false)
    });
    lists.add("retainAll", &["object list, object those -> object"], NullPolicy::Fail, |args| {
        retain_items(args, true)
    });
    lists.add("removeByIndex", &["object list, int index -> object"], NullPolicy::Fail, |args| {
        let list = list(args, 0)?;
        let mut items = list.lock();
        let at = place(args, 1, items.len())?;
        items.remove(at);
        drop(items);
        object(list)
    });
    lists.add("setValue", &["object list, int index, any x -> object"], NullPolicy::Pass, |args| {
        let list = list(args, 0)?;
        check_insertable(&args[2], &list)?;
        let mut items = list.lock();
        let at = place(args, 1, items.len())?;
        items[at] = args[2].clone();
        drop(items);
        object(list)
    });
    lists.build("sort", &["object list, const string order? -> object"], NullPolicy::Fail, |args| {
        let order = constant_text(args, 1).unwrap_or("REV");
        let (sort, reverse) = match order.to_ascii_uppercase().as_str() {
            "ASC" => (true, false),
            "DESC" => (true, true),
            "REV" => (false, true),
            _ => return Err(format!("unknown order `{order}`: expected ASC, DESC or REV")),
        };
        Ok(Box::new(move |args, _| {
            let list = list(args, 0)?;
            let mut items = list.lock();
            if sort {
                ascending(&mut items)?;
            }
            if reverse {
                items.reverse();
            }
            drop(items);
            object(list)
        }))
    });
}

/// Retains the items that the second list contains (`those`), or those that it does not contain.
fn retain_items(args: &[Value], those: bool) -> ScalarResult {
    let (list, others) = (list(args, 0)?, list(args, 1)?);
    let others = others.lock().clone();
    let mut items = list.lock().clone();
    items.retain(|item| others.iter().any(|other| equal(item, other)) == those);
    *list.lock() = items;
    object(list)
}

/// Sorts strings, ignoring case, or numbers of one type. The sort is stable.
fn ascending(items: &mut [Value]) -> Result<(), String> {
    let alike = items.windows(2).all(|pair| pair[0].ty() == pair[1].ty());
    let wrong = items.iter().find(|v| v.as_str().is_none() && v.as_f64().is_none());
    if let Some(wrong) = wrong {
        return Err(format!("cannot sort `{wrong}`: expected a string or a number"));
    }
    if !alike {
        return Err("cannot sort values of different types".into());
    }
    items.sort_by(|a, b| match (a, b) {
        (Value::Str(a), Value::Str(b)) => without_case(a).cmp(without_case(b)),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Long(a), Value::Long(b)) => a.cmp(b),
        _ => a.as_f64().zip(b.as_f64()).map_or(Ordering::Equal, |(a, b)| a.total_cmp(&b)),
    });
    Ok(())
}

fn without_case(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// Returns the index of the first item equal to `x`.
fn find(list: &List, x: &Value) -> Option<usize> {
    if let Value::Object(_) = x {
        // `x` may contain the list, and comparing it locks the list
        let items = list.lock().clone();
        return items.iter().position(|item| equal(item, x));
    }
    list.lock().iter().position(|item| equal(item, x))
}

fn register_readers(lists: &mut NamespaceRegistrar<'_>) {
    lists.add("get", &["object list, int index -> object"], NullPolicy::Fail, |args| {
        let list = list(args, 0)?;
        let index = usize::try_from(int(args, 1)?).ok();
        let item = index.and_then(|i| list.lock().get(i).cloned());
        Ok(item.unwrap_or_default())
    });
    lists.add("contains", &["object list, any x -> bool"], NullPolicy::Pass, |args| {
        Ok(Value::Bool(find(&list(args, 0)?, &args[1]).is_some()))
    });
    let two = ["object list, object those -> bool"];
    lists.add("containsAll", &two, NullPolicy::Fail, |args| {
        let (items, those) = (list(args, 0)?.lock().clone(), list(args, 1)?.lock().clone());
        Ok(Value::Bool(those.iter().all(|x| items.iter().any(|item| equal(item, x)))))
    });
    lists.add("containsAny", &two, NullPolicy::Fail, |args| {
        let (items, those) = (list(args, 0)?.lock().clone(), list(args, 1)?.lock().clone());
        Ok(Value::Bool(those.iter().any(|x| items.iter().any(|item| equal(item, x)))))
    });
    lists.add("isEmpty", &["object list -> bool"], NullPolicy::Fail, |args| {
        Ok(Value::Bool(list(args, 0)?.lock().is_empty()))
    });
    lists.add("isList", &["any x -> bool"], NullPolicy::Pass, |args| Ok(Value::Bool(is_list(&args[0]))));
    lists.add("size", &["object list -> int"], NullPolicy::Fail, |args| {
        Ok(Value::Int(list(args, 0)?.lock().len() as i32))
    });
    lists.add("indexOf", &["object list, any x -> int"], NullPolicy::Pass, |args| {
        let found = find(&list(args, 0)?, &args[1]);
        Ok(Value::Int(found.map_or(-1, |i| i as i32)))
    });
    lists.add("lastIndexOf", &["object list, any x -> int"], NullPolicy::Pass, |args| {
        let items = list(args, 0)?.lock().clone();
        let found = items.iter().rposition(|item| equal(item, &args[1]));
        Ok(Value::Int(found.map_or(-1, |i| i as i32)))
    });
}
