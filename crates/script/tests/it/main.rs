//! Scripts and their results: `tests/cases/*.txt`.
//!
//! A case is `=== name`, the body of the function, `---`, and lines `[arguments as JSON] = result`. Every call is made
//! twice, and must have the same result. The time is 2023-03-14 15:09:26.535, the seed is 7. `UPDATE_CASES=1` rewrites
//! the results.

use std::path::Path;
use std::{env, fs, thread};

use serde_json::Value;
use tidemill_script::{CallContext, Script, ScriptValue};

const CONTEXT: CallContext = CallContext { now_ms: 1_678_806_566_535, seed: Some(7) };

fn from_json(value: &Value) -> ScriptValue {
    match value {
        Value::Null => ScriptValue::Null,
        Value::Bool(b) => ScriptValue::Bool(*b),
        Value::Number(n) => {
            n.as_i64().map_or_else(|| ScriptValue::Number(n.as_f64().expect("a number")), ScriptValue::Int)
        }
        Value::String(text) => ScriptValue::Text(text.clone()),
        Value::Array(items) => ScriptValue::List(items.iter().map(from_json).collect()),
        Value::Object(entries) => {
            ScriptValue::Map(entries.iter().map(|(k, v)| (k.clone(), from_json(v))).collect())
        }
    }
}

fn show(value: &ScriptValue) -> String {
    match value {
        ScriptValue::Null => "null".into(),
        ScriptValue::Bool(b) => b.to_string(),
        ScriptValue::Int(n) => n.to_string(),
        ScriptValue::Number(n) => format!("{n:?}"),
        ScriptValue::Text(text) => format!("{text:?}"),
        ScriptValue::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        ScriptValue::Map(entries) => {
            let entries: Vec<_> = entries.iter().map(|(k, v)| format!("{k}: {}", show(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Returns the lines of a case with their current results.
fn filled(name: &str, case: &str) -> String {
    let (body, calls) = case.split_once("\n---\n").unwrap_or((case, ""));
    let mut out = format!("=== {name}\n{body}\n---\n");
    match Script::compile(name, body) {
        Err(error) => out.push_str(&format!("refused: {error}\n")),
        Ok(script) => {
            for line in calls.lines().filter(|line| line.starts_with('[')) {
                let written = line.split_once(" = ").map_or(line, |(args, _)| args);
                let args: Value =
                    serde_json::from_str(written).unwrap_or_else(|e| panic!("{name}: `{line}`: {e}"));
                let args: Vec<_> = args.as_array().expect("an array").iter().map(from_json).collect();
                let [first, second] = [(), ()].map(|()| match script.call(&args, CONTEXT) {
                    Ok(value) => show(&value),
                    Err(error) => format!("fails: {error}"),
                });
                assert_eq!(first, second, "{name}: the second call of {written}");
                out.push_str(&format!("{written} = {first}\n"));
            }
        }
    }
    out
}

#[test]
fn scripts_give_what_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for entry in fs::read_dir(folder).expect("a folder of cases") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file of cases");
        let cases = text.strip_prefix("=== ").expect("a case").split("\n=== ").map(|case| {
            let (name, rest) = case.split_once('\n').expect("a name and a line end");
            filled(name, rest.trim_end())
        });
        let found = cases.collect::<Vec<_>>().join("\n");
        if env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, found).expect("writing a file of cases");
        } else {
            assert_eq!(found, text, "{}", path.display());
        }
    }
}

/// Bodies of `tests/limits/*.txt`, each with a built-in function that would work for hours: on a large length, or again and
/// again on a long text.
#[test]
fn built_in_functions_count_their_work() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits/builtins.txt");
    let text = fs::read_to_string(path).expect("a file of bodies");
    let bodies: Vec<&str> = text.strip_prefix("=== ").expect("a body").split("\n=== ").collect();
    let goes_on = |body: &&str| {
        let (name, body) = body.split_once('\n').expect("a name and a line end");
        let outcome = Script::compile("f", body).and_then(|script| script.call(&[], CONTEXT));
        let stopped = outcome.as_ref().is_err_and(|error| error.message.contains(" steps (turns of loops"));
        (!stopped).then(|| format!("{name}: {outcome:?}"))
    };
    // each takes seconds
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts = bodies.chunks(bodies.len().div_ceil(threads));
        let running: Vec<_> =
            parts.map(|part| scope.spawn(|| part.iter().filter_map(goes_on).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_with_little_stack_share_a_script() {
    let script =
        Script::compile("f", "function g(n) { return n < 1 ? 0 : 1 + g(n - 1); } return g(data[0]);")
            .unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, || {
                    for n in 0..200 {
                        assert_eq!(script.call(&[ScriptValue::Int(n)], CONTEXT), Ok(ScriptValue::Int(n)));
                    }
                    let error = script.call(&[ScriptValue::Int(1_000_000)], CONTEXT).unwrap_err();
                    assert!(error.message.contains("stack"), "{error}");
                })
                .unwrap();
        }
    });
}

#[test]
fn machine_zone_and_clock_are_not_visible() {
    let body =
        "return [new Date().getHours(), new Date(2020, 5, 1).getTime(), Date.parse('2020-06-01T00:00'),
        String(new Date(0)), new Date(0).getTimezoneOffset()].join()";
    let script = Script::compile("f", body).unwrap();
    let found = script.call(&[], CONTEXT).unwrap();
    let expected = "15,1590969600000,1590969600000,Thu Jan 01 1970 00:00:00 GMT+0000 (UTC),0";
    assert_eq!(found, ScriptValue::Text(expected.into()));
}
