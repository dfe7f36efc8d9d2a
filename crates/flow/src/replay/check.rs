//! Comparison of the output of recorded runs with the expected output.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Case, OutputItem, OutputKind, Replay, compile};
use crate::eval_error::EvalError;
use crate::registry::Registry;

/// Runs a case. Returns the differences of its output from the expected one; empty if it is as expected.
pub fn check(case: &Case, registry: &Registry) -> Vec<String> {
    check_interrupted(case, registry, &mut |_| false)
}

/// Runs a case like [`check`], but [reloads](Replay::reload) the app before each input for which `before`
/// returns true.
pub fn check_interrupted(
    case: &Case,
    registry: &Registry,
    before: &mut dyn FnMut(usize) -> bool,
) -> Vec<String> {
    check_with(case, registry, &mut |replay, i| {
        if !before(i) {
            return Ok(());
        }
        let plan = compile("app.siddhi", &case.app, registry, &|_| None).map_err(EvalError::request)?;
        replay.reload(plan)
    })
}

/// Runs a case like [`check`], and calls `before` with the app before each input.
pub fn check_with(
    case: &Case,
    registry: &Registry,
    before: &mut dyn FnMut(&mut Replay<'_>, usize) -> Result<(), EvalError>,
) -> Vec<String> {
    let plan = match (compile("app.siddhi", &case.app, registry, &|_| None), &case.error) {
        (Err(_), Some(_)) => return vec![],
        (Err(e), None) => return vec![format!("expected an app that compiles, found errors:\n{e}")],
        (Ok(_), Some(_)) => return vec!["expected an app with errors, but it compiles".into()],
        (Ok(plan), None) => plan,
    };
    let mut differences = Vec::new();
    for (stream, wanted) in &case.schemas {
        let found = plan.catalog.find(stream).map(|s| {
            let attributes = plan.catalog.streams()[s].attributes.iter();
            attributes.map(|(name, ty)| (name.clone(), ty.name().to_owned())).collect::<Vec<_>>()
        });
        if found.as_ref() != Some(wanted) {
            differences.push(format!("{stream} has the attributes {found:?}, expected {wanted:?}"));
        }
    }
    let watches = |stream: &str| case.outputs.iter().any(|o| o == stream);
    let watches_query = |query: &str| case.queries.iter().any(|q| q == query);
    let mut replay = Replay::new(plan, case.start, &watches, &watches_query);
    for (i, input) in case.inputs.iter().enumerate() {
        differences.extend(before(&mut replay, i).err().map(|e| format!("before input {i}: {e}")));
        replay.input(input);
    }
    let found = replay.take_outputs();
    for (list, wanted) in lists(&case.expected) {
        let found: Vec<&OutputItem> = found.iter().filter(|o| list_of(o) == list).collect();
        differences.extend(compare(&list, &found, &wanted, case.unordered));
    }
    let expected_lists = lists(&case.expected);
    for (list, extra) in lists(&found) {
        if !expected_lists.contains_key(&list) {
            differences.push(format!("{list}: {} unexpected, first {}", extra.len(), text(extra[0])));
        }
    }
    differences
}

/// Returns the list in which an output is compared: that of a stream, a query, the answers or the failures.
fn list_of(output: &OutputItem) -> String {
    match &output.what {
        // events and retractions share a list, because their order matters
        OutputKind::Stream { stream, .. } | OutputKind::Retracted { retracted: stream, .. } => {
            format!("stream {stream}")
        }
        OutputKind::Query { query, .. } => format!("query {query}"),
        OutputKind::Rows { .. } => "answers".into(),
        OutputKind::Failure { .. } => "failures".into(),
    }
}

fn lists(outputs: &[OutputItem]) -> BTreeMap<String, Vec<&OutputItem>> {
    let mut lists: BTreeMap<String, Vec<&OutputItem>> = BTreeMap::new();
    for output in outputs {
        lists.entry(list_of(output)).or_default().push(output);
    }
    lists
}

fn text(output: &OutputItem) -> String {
    serde_json::to_string(output).unwrap_or_default()
}

fn compare(list: &str, found: &[&OutputItem], wanted: &[&OutputItem], unordered: bool) -> Option<String> {
    let mut found = found.to_vec();
    for (i, wanted) in wanted.iter().enumerate() {
        let Some(place) = (match unordered {
            false => found.first().filter(|f| same(f, wanted, false)).map(|_| 0),
            true => found.iter().position(|f| same(f, wanted, true)),
        }) else {
            let first = found.first().map_or_else(|| "nothing more".to_owned(), |f| text(f));
            return Some(format!("{list}, number {i}: expected {}, found {first}", text(wanted)));
        };
        found.remove(place);
    }
    found.first().map(|f| format!("{list}: {} too many, first {}", found.len(), text(f)))
}

/// Returns whether two outputs are equal. With `unordered`, the rows of an answer may be in any order.
fn same(a: &OutputItem, b: &OutputItem, unordered: bool) -> bool {
    let rows = |a: &[Vec<Json>], b: &[Vec<Json>]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_values(a, b))
    };
    a.input == b.input
        && match (&a.what, &b.what) {
            (
                OutputKind::Stream { timestamp: s, data: a, .. },
                OutputKind::Stream { timestamp: t, data: b, .. },
            )
            | (
                OutputKind::Retracted { timestamp: s, data: a, .. },
                OutputKind::Retracted { timestamp: t, data: b, .. },
            ) => s == t && same_values(a, b),
            (
                OutputKind::Query { current: c, expired: e, .. },
                OutputKind::Query { current: d, expired: f, .. },
            ) => rows(c, d) && rows(e, f),
            (OutputKind::Rows { rows: a }, OutputKind::Rows { rows: b }) if unordered => {
                let mut rest: Vec<&Vec<Json>> = a.iter().collect();
                let take = |row: &Vec<Json>| {
                    let place = rest.iter().position(|r| same_values(r, row));
                    place.map(|place| rest.swap_remove(place)).is_some()
                };
                a.len() == b.len() && b.iter().all(take)
            }
            (OutputKind::Rows { rows: a }, OutputKind::Rows { rows: b }) => rows(a, b),
            (OutputKind::Failure { .. }, OutputKind::Failure { .. }) => true,
            _ => false,
        }
}

fn same_values(a: &[Json], b: &[Json]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
}

/// Returns whether two values are equal: integers exactly, other numbers to the precision of a float.
fn same_value(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            _ => {
                let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
                (a - b).abs() <= 1e-12 + 1e-6 * a.abs().max(b.abs())
            }
        },
        (Json::Array(a), Json::Array(b)) => same_values(a, b),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same_value(v, w)))
        }
        _ => a == b,
    }
}
