//! Comparison of actual with expected objects.

use serde_json::{Map, Value as Json};
use tidemill_types::Timestamp;

/// Returns whether every field of `expected` is in `actual` with an equal value.
pub(super) fn matches_expected(actual: &Map<String, Json>, expected: &Map<String, Json>) -> bool {
    expected.iter().all(|(name, value)| equal(actual.get(name).unwrap_or(&Json::Null), value))
}

/// Compares numbers by value, times by instant, and objects by the expected fields; null equals missing.
fn equal(actual: &Json, expected: &Json) -> bool {
    match (actual, expected) {
        (Json::Object(actual), Json::Object(expected)) => {
            if let (Some(text), 1) = (expected.get("$date").and_then(Json::as_str), expected.len()) {
                return equal(&Json::Object(actual.clone()), &Json::from(text));
            }
            matches_expected(actual, expected)
        }
        (Json::Array(actual), Json::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| equal(a, e))
        }
        (Json::Number(a), Json::Number(e)) => match (a.as_i64(), e.as_i64()) {
            (Some(a), Some(e)) => a == e,
            _ => a.as_f64() == e.as_f64(),
        },
        (Json::String(a), Json::Object(e)) if e.len() == 1 => {
            e.get("$date").and_then(Json::as_str).is_some_and(|e| same_time(a, e))
        }
        (Json::String(a), Json::String(e)) => a == e || same_time(a, e),
        (actual, expected) => actual == expected,
    }
}

fn same_time(a: &str, b: &str) -> bool {
    a.len() >= 10
        && b.len() >= 10
        && matches!((Timestamp::parse(a), Timestamp::parse(b)), (Ok(a), Ok(b)) if a == b)
}

/// Pairs each expected object with an actual one. Returns the positions of unmatched expected and of
/// unmatched actual objects.
pub(super) fn match_objects(
    actual: &[Map<String, Json>],
    expected: &[&Map<String, Json>],
) -> (Vec<usize>, Vec<usize>) {
    let mut free: Vec<usize> = (0..actual.len()).collect();
    let mut unmet = Vec::new();
    for (i, wanted) in expected.iter().enumerate() {
        match free.iter().position(|a| matches_expected(&actual[*a], wanted)) {
            Some(found) => {
                free.remove(found);
            }
            None => unmet.push(i),
        }
    }
    (unmet, free)
}

/// Describes how the nearest of `candidates` differs from `expected`; `None` if there are no candidates.
pub(super) fn describe_nearest(
    expected: &Map<String, Json>,
    candidates: &[&Map<String, Json>],
) -> Option<String> {
    let agreeing = |actual: &Map<String, Json>| {
        expected.iter().filter(|(n, v)| equal(actual.get(*n).unwrap_or(&Json::Null), v)).count()
    };
    // the first of the best, so that the message is deterministic
    let best = candidates.iter().rev().max_by_key(|c| agreeing(c))?;
    let differences: Vec<String> = expected
        .iter()
        .filter_map(|(name, wanted)| match best.get(name) {
            Some(found) if equal(found, wanted) => None,
            None if wanted.is_null() => None,
            Some(found) => Some(format!("  {name}: expected {wanted}, found {found}")),
            None => Some(format!("  {name}: expected {wanted}, it is missing")),
        })
        .collect();
    Some(format!("the nearest is {}\n{}", Json::Object((*best).clone()), differences.join("\n")))
}
