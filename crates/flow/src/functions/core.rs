//! Functions without a namespace, except `convert` and `cast`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::library::{NamespaceRegistrar, NullPolicy, ScalarResult};
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::expr::{Comparison, compare};

pub(super) fn register(core: &mut NamespaceRegistrar<'_>) {
    core.add("coalesce", &["T x, T more* -> T"], NullPolicy::Pass, first);
    core.add("default", &["T x, const T otherwise -> T"], NullPolicy::Pass, first);
    core.add("ifThenElse", &["bool condition, T then, T otherwise -> T"], NullPolicy::Pass, |args| {
        Ok(if args[0].is_true() { args[1].clone() } else { args[2].clone() })
    });
    core.add("maximum", &["N x, N more* -> N"], NullPolicy::Pass, |args| {
        Ok(min_or_max(args, Comparison::Gt))
    });
    core.add("minimum", &["N x, N more* -> N"], NullPolicy::Pass, |args| {
        Ok(min_or_max(args, Comparison::Lt))
    });
    core.add("instanceOfInteger", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Int(_)))
    });
    core.add("instanceOfLong", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Long(_)))
    });
    core.add("instanceOfFloat", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Float(_)))
    });
    core.add("instanceOfDouble", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Double(_)))
    });
    core.add("instanceOfBoolean", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Bool(_)))
    });
    core.add("instanceOfString", &["any x -> bool"], NullPolicy::Pass, |a| {
        bool_result(matches!(a[0], Value::Str(_)))
    });
    core.build("UUID", &[" -> string"], NullPolicy::Pass, |_| {
        Ok(Box::new(|_, state| {
            let bits = u128::from(state.random()) << 64 | u128::from(state.random());
            let uuid = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
            Ok(Value::text(&uuid.to_string()))
        }))
    });
    core.build("currentTimeMillis", &[" -> long"], NullPolicy::Pass, |_| {
        Ok(Box::new(|_, state| Ok(Value::Long(state.now))))
    });
    core.build("eventTimestamp", &[" -> long"], NullPolicy::Pass, |_| {
        Ok(Box::new(|_, state| Ok(Value::Long(state.time))))
    });
    core.add("createSet", &["value x -> object"], NullPolicy::Pass, |args| {
        let set = BTreeMap::from([(Key(args[0].clone()), 1)]);
        Ok(Value::Object(OpaqueValue::Set(Arc::new(Mutex::new(set)))))
    });
    core.add("sizeOfSet", &["object set -> int"], NullPolicy::Pass, |args| match &args[0] {
        Value::Null => Ok(Value::Int(0)),
        Value::Object(OpaqueValue::Set(set)) => Ok(Value::Int(set.lock().len() as i32)),
        other => Err(format!("`{other}` is not a set")),
    });
}

fn bool_result(it: bool) -> ScalarResult {
    Ok(Value::Bool(it))
}

fn first(args: &[Value]) -> ScalarResult {
    Ok(args.iter().find(|a| !a.is_null()).cloned().unwrap_or_default())
}

/// Returns the greatest or least non-null value, or null if all are null. Differs from Siddhi 5.1, whose
/// `maximum` starts from 0 and therefore never returns a negative maximum.
fn min_or_max(args: &[Value], wanted: Comparison) -> Value {
    let some = args.iter().filter(|a| !a.is_null());
    some.reduce(|best, x| if compare(wanted, x, best) { x } else { best }).cloned().unwrap_or_default()
}
