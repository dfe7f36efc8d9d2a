//! Functions and aggregates, one per line: `tests/cases/functions*.txt`.
//!
//! `expression = value : type`, `expression fails: why`, `expression refused: why`. Longs and floats have a
//! suffix. `let name = expression` makes the value an attribute, so that it is not a constant; the attributes
//! `noString`, `noInt`, `noLong`, `noFloat`, `noDouble`, `noBool` and `noObject` are null. The current time
//! is 2023-03-14 15:09:26.535, the event's timestamp is 1000.
//!
//! The cases of an aggregate start with `aggregate f(x, ...) of type, ...`; its arguments are attributes.
//! Each following line adds an event, `+ (expression, ...)`, or removes one, `- (...)`, or is a `reset`; the
//! value follows after ` = `. After each line the state is saved and restored into another accumulator, which
//! must have an equal value and is used from then on.
//!
//! `UPDATE_CASES=1` rewrites the results.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use tidemill_flow::EvalError;
use tidemill_flow::app_stores::AppStores;
use tidemill_flow::column::Column;
use tidemill_flow::compiler::{ColumnRef, Compiler, Scope};
use tidemill_flow::expr::{Expr, Frame, NoContext};
use tidemill_flow::registry::{AggregateCall, Aggregator, ArgumentType, FunctionContext};
use tidemill_flow::value::Key;
use tidemill_flow::{OpaqueValue, Registry, Value};
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::AttributeRef;
use tidemill_lang::siddhi::parse_expression;
use tidemill_lang::source::{FileId, SourceFile};
use tidemill_types::FieldType;

const NOW: i64 = 1_678_806_566_535;
const TIME: i64 = 1000;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::standard);

/// Scope and columns of a single row.
#[derive(Default)]
struct Row {
    names: Vec<String>,
    columns: Vec<Column>,
    /// Source of random values.
    shared: AppStores,
}

impl Row {
    fn nulls() -> Self {
        let mut row = Self::default();
        for ty in [
            FieldType::String,
            FieldType::Int,
            FieldType::Long,
            FieldType::Float,
            FieldType::Double,
            FieldType::Bool,
            FieldType::Object,
        ] {
            let (first, rest) = ty.name().split_at(1);
            row.set(&format!("no{}{rest}", first.to_uppercase()), ty, Value::Null);
        }
        row
    }

    fn set(&mut self, name: &str, ty: FieldType, value: Value) {
        let mut column = Column::new(ty);
        column.push(value);
        match self.names.iter().position(|n| n == name) {
            Some(i) => self.columns[i] = column,
            None => {
                self.names.push(name.to_owned());
                self.columns.push(column);
            }
        }
    }

    fn eval(&self, expr: &Expr) -> Result<Value, EvalError> {
        let rows = [Some((self.columns.as_slice(), 0))];
        expr.eval(&Frame { rows: &rows, time: TIME, now: NOW, host: &self.shared })
    }
}

impl Scope for Row {
    fn all_names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let name = &attribute.name;
        let column = self.names.iter().position(|n| *n == name.name);
        let column = column
            .ok_or_else(|| Diagnostic::error("X", name.span, format!("no attribute `{}`", name.name)))?;
        Ok(ColumnRef { slot: 0, column, ty: self.columns[column].ty() })
    }
}

/// Compiles an expression and returns its aggregate calls separately.
fn compile(text: &str, row: &mut Row) -> Result<(Expr, Vec<AggregateCall>), String> {
    let file = SourceFile::new(FileId(0), "expression", text);
    let parsed = parse_expression(&file).map_err(|all| all[0].message.clone())?;
    let mut calls = Vec::new();
    let mut compiler = Compiler { scope: row, registry: &REGISTRY, aggregates: Some((&mut calls, 1)) };
    let expr = compiler.compile(&parsed).map_err(|d| d.message)?;
    Ok((expr, calls))
}

/// Formats a value in SiddhiQL syntax, as far as possible.
fn show(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("{text:?}"),
        Value::Long(n) => format!("{n}L"),
        Value::Float(_) => format!("{value}f"),
        Value::Object(OpaqueValue::List(items)) => {
            format!("[{}]", items.lock().iter().map(show).collect::<Vec<_>>().join(", "))
        }
        Value::Object(OpaqueValue::Map(entries)) => {
            let entries: Vec<_> =
                entries.lock().iter().map(|(k, v)| format!("{}: {}", show(&k.0), show(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Object(OpaqueValue::Set(items)) => {
            format!("set({})", items.lock().keys().map(|k| show(&k.0)).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn outcome(text: &str, row: &mut Row) -> String {
    let (expr, calls) = match compile(text, row) {
        Ok(compiled) => compiled,
        Err(why) => return format!(" refused: {why}"),
    };
    if !calls.is_empty() {
        return " is an aggregate".into();
    }
    match row.eval(&expr) {
        Ok(value) => {
            let fits = value.ty().is_none_or(|ty| ty == expr.ty || expr.ty == FieldType::Object);
            assert!(fits, "{text}: {value:?} is not of type {}", expr.ty.name());
            format!(" = {} : {}", show(&value), expr.ty.name())
        }
        Err(why) => format!(" fails: {why}"),
    }
}

/// Aggregate under test.
struct Trial {
    call: AggregateCall,
    row: Row,
    state: Box<dyn Aggregator>,
}

impl Trial {
    /// Parses `f(x) of type`.
    fn begin(text: &str) -> Result<Self, String> {
        let (call, types) = text.split_once(" of ").unwrap_or((text, ""));
        let mut row = Row::nulls();
        for (name, ty) in ["x", "y", "z"].iter().zip(types.split(',').map(str::trim)) {
            if let Some(ty) = FieldType::parse(ty) {
                row.set(name, ty, Value::Null);
            }
        }
        let (_, mut calls) = compile(call, &mut row)?;
        let call = calls.pop().ok_or("no aggregate")?;
        let state = (call.make)();
        Ok(Self { call, row, state })
    }

    fn step(&mut self, line: &str) -> String {
        let (action, values) = line.split_at(1);
        if action == "r" {
            self.state.reset();
        } else {
            let values = values.trim();
            let values = values.strip_prefix('(').and_then(|v| v.strip_suffix(')')).unwrap_or(values);
            let values = values.split(", ").filter(|v| !v.is_empty());
            for (name, text) in ["x", "y", "z"].iter().zip(values) {
                let (expr, _) = compile(text, &mut self.row).expect(text);
                let column = self.row.names.iter().position(|n| n == name).expect(name);
                let (ty, value) = (self.row.columns[column].ty(), self.row.eval(&expr).expect(text));
                self.row.set(name, ty, value.widen(ty));
            }
            let args: Vec<Value> = self.call.args.iter().map(|a| self.row.eval(a).expect(line)).collect();
            let done = if action == "+" { self.state.add(&args) } else { self.state.remove(&args) };
            if let Err(why) = done {
                return format!(" fails: {why}");
            }
        }
        let shown = show(&self.state.value());
        let saved = serde_json::from_str(&self.state.save().to_string()).expect("JSON");
        let mut restored = (self.call.make)();
        restored.restore(&saved).expect(line);
        assert_eq!(show(&restored.value()), shown, "restored after {line}");
        self.state = restored;
        format!(" = {shown}")
    }
}

/// Returns the input part of a line, without the result.
fn question(line: &str) -> &str {
    let ends = [" = ", " fails: ", " refused: ", " makes "].map(|mark| line.find(mark));
    line[..ends.into_iter().flatten().min().unwrap_or(line.len())].trim_end()
}

fn run(text: &str) -> String {
    let mut row = Row::nulls();
    let mut trial = None;
    let mut out = String::new();
    for line in text.lines() {
        let line = if let Some(set) = line.strip_prefix("let ") {
            let (name, text) = set.split_once(" = ").expect("let name = expression");
            let (expr, _) = compile(text, &mut row).expect(text);
            let value = row.eval(&expr).expect(text);
            row.set(name, expr.ty, value);
            line.to_owned()
        } else if let Some(call) = question(line).strip_prefix("aggregate ") {
            match Trial::begin(call) {
                Ok(begun) => {
                    let ty = begun.call.ty.name();
                    trial = Some(begun);
                    format!("aggregate {call} makes {ty}")
                }
                Err(why) => format!("aggregate {call} refused: {why}"),
            }
        } else if line.is_empty() || line.starts_with('#') {
            line.to_owned()
        } else {
            let asked = question(line);
            let step = asked == "reset" || asked.starts_with("+ ") || asked.starts_with("- ");
            match &mut trial {
                Some(trial) if step => format!("{asked}{}", trial.step(asked)),
                _ => format!("{asked}{}", outcome(asked, &mut row)),
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn case_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(&folder).expect("the folder of cases");
    let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("functions")));
    paths.sort();
    paths
}

#[test]
fn functions_and_aggregates_give_what_the_cases_say() {
    let mut checks = 0;
    let mut wrong = Vec::new();
    for path in case_files() {
        let text = fs::read_to_string(&path).expect("a file of cases");
        let found = run(&text);
        checks +=
            found.lines().filter(|l| !l.is_empty() && !l.starts_with('#') && !l.starts_with("let ")).count();
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, found).expect("writing the cases");
            continue;
        }
        for (i, (expected, found)) in text.lines().zip(found.lines()).enumerate() {
            if expected != found {
                let place = format!("{}:{}", path.display(), i + 1);
                wrong.push(format!("{place}\n  expected {expected}\n  found    {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checks >= 300, "{checks} checks");
}

/// Names of the functions and aggregates that the cases call.
static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let call = regex::Regex::new(r"(?:[a-z]+:)?[A-Za-z]+\(").expect("a pattern");
    let mut names = BTreeSet::new();
    for path in case_files() {
        let text = fs::read_to_string(path).expect("a file of cases");
        names.extend(call.find_iter(&text).map(|m| m.as_str().trim_end_matches('(').to_owned()));
    }
    names
});

/// Strings with many of the characters of patterns, paths, formats, JSON and XML.
fn odd_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        r#"[\[\]{}()\\|?*+.^$&~:,<>=!'"@/ -]"#,
        "[a-zA-Z0-9]",
        Just("😀".to_owned()),
        Just("é".to_owned()),
        Just("\\".to_owned()),
        Just("{{1}}".to_owned()),
        Just("$.a[0]".to_owned()),
        Just("yyyy-MM-dd".to_owned()),
        Just("2023-03-14".to_owned()),
        Just("{'a':[1,2.5]}".to_owned()),
        Just("<a>1</a>".to_owned()),
        Just("int".to_owned()),
        Just("(?<x>".to_owned()),
        Just("\\Q".to_owned()),
        Just("&&".to_owned()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn odd_value() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![any::<i32>(), -3..40].prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<f32>().prop_map(Value::Float),
        any::<f64>().prop_map(Value::Double),
        odd_text().prop_map(|t| Value::text(&t)),
        odd_text().prop_map(|t| Value::text(&t)),
        odd_text().prop_map(|t| Value::text(&t)),
    ];
    plain.prop_recursive(3, 8, 3, |inner| {
        let keys = (inner.clone(), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|items| Value::Object(OpaqueValue::list(items))),
            prop::collection::vec(keys, 0..3).prop_map(|entries| {
                Value::Object(OpaqueValue::map(entries.into_iter().map(|(k, v)| (Key(k), v)).collect()))
            }),
        ]
    })
}

proptest! {
    /// For any arguments, a function returns a value or an error and does not panic.
    #[test]
    fn any_arguments_are_answered(
        args in prop::collection::vec((odd_value(), any::<bool>(), any::<bool>()), 0..4),
    ) {
        let registry = &*REGISTRY;
        let values: Vec<Value> = args.iter().map(|(value, ..)| value.clone()).collect();
        let described: Vec<ArgumentType> = args.iter().map(|(value, constant, object)| ArgumentType {
            ty: value.ty().filter(|_| !object).unwrap_or(FieldType::Object),
            constant: (*constant && !value.is_null()).then(|| value.clone()),
        }).collect();
        let state = FunctionContext { now: NOW, time: TIME, host: &NoContext };
        for name in &*NAMES {
            if let Some(Ok((function, _))) = registry.find_function(name).map(|build| build(&described)) {
                let _ = function.call(&values, &state);
            }
            if let Some(Ok((make, _))) = registry.find_aggregator(name).map(|build| build(&described)) {
                let mut state = make();
                let _ = (state.add(&values), state.remove(&values), state.remove(&values), state.add(&values));
                let saved = state.save();
                let mut restored = make();
                prop_assert!(restored.restore(&saved).is_ok(), "{name}: {saved}");
                prop_assert_eq!(show(&restored.value()), show(&state.value()));
                for foreign in [serde_json::json!(null), serde_json::json!([[1]]), serde_json::json!({"a": "b"})] {
                    let _ = restored.restore(&foreign);
                }
                state.reset();
                let _ = state.value();
            }
        }
    }
}
