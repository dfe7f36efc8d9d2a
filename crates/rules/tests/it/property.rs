//! Property tests: vectorized evaluation equals row-at-a-time evaluation, and indexed selection equals
//! evaluating every rule's conditions.

use std::fmt::Write as _;

use arrow_array::RecordBatch;
use proptest::prelude::*;
use tidemill_rules::Program;
use tidemill_rules::expr::block::{BoolOp, ROWS, RowBlock};
use tidemill_rules::expr::eval::truth;
use tidemill_rules::expr::{Bindings, Columns, Row};

use crate::world::batch;

const EVENT: &str =
    "event E { i: int, l: long, f: float, x: double, s: string, z: string, b: bool, t: time, u: time };\n";

/// Generates source text of a random integer expression; the functions below do so for the other types.
fn whole() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("i".to_owned()),
        Just("l".to_owned()),
        (-3_i64..4).prop_map(|n| n.to_string()),
        Just("9223372036854775807".to_owned()),
        Just("length(s)".to_owned()),
        Just("hour(t)".to_owned()),
        Just("weekday(u)".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), prop_oneof![Just("+"), Just("-"), Just("*"), Just("%")], inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("div({a}, {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("coalesce({a}, {b})")),
        ]
    })
}

fn float() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("f".to_owned()),
        Just("x".to_owned()),
        Just("0.5".to_owned()),
        Just("-1.5".to_owned()),
        Just("1e300".to_owned()),
        whole().prop_map(|n| format!("({n} / 2)")),
        span().prop_map(|d| format!("({d} / 1 min)")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (
                inner.clone(),
                prop_oneof![Just("+"), Just("-"), Just("*"), Just("/"), Just("%")],
                inner.clone()
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("round({a})")),
            (inner, whole()).prop_map(|(a, b)| format!("({a} * {b})")),
        ]
    })
}

fn time() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("t".to_owned()),
        Just("u".to_owned()),
        Just("now".to_owned()),
        Just("time(\"2013-01-01T10:00:00Z\")".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), prop_oneof![Just("+"), Just("-")], 0_i64..100)
                .prop_map(|(a, op, n)| format!("({a} {op} {n} min)")),
            inner.prop_map(|a| format!("truncate({a}, 1 hour)")),
        ]
    })
}

fn span() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_i64..100).prop_map(|n| format!("{n} min")),
        (time(), time()).prop_map(|(a, b)| format!("({a} - {b})")),
        (time(), time(), -2_i64..3).prop_map(|(a, b, n)| format!("(({a} - {b}) * {n})")),
        (time(), time(), 1_i64..3).prop_map(|(a, b, n)| format!("(({a} - {b}) / {n})")),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("s".to_owned()),
        Just("z".to_owned()),
        Just("\"a\"".to_owned()),
        Just("\"\"".to_owned()),
        Just("upper(s)".to_owned()),
        Just("(s + z)".to_owned()),
        Just("(s + i)".to_owned()),
    ]
}

fn comparison() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")]
}

fn condition() -> impl Strategy<Value = String> {
    let compare = |a: BoxedStrategy<String>, b: BoxedStrategy<String>| {
        (a, comparison(), b).prop_map(|(a, op, b)| format!("{a} {op} {b}"))
    };
    let leaf = prop_oneof![
        Just("b".to_owned()),
        compare(whole().boxed(), whole().boxed()),
        compare(float().boxed(), float().boxed()),
        compare(whole().boxed(), float().boxed()),
        compare(time().boxed(), time().boxed()),
        compare(span().boxed(), span().boxed()),
        compare(text().boxed(), text().boxed()),
        Just("i in [1, 2, -1]".to_owned()),
        Just("s in [\"a\", \"b\"]".to_owned()),
        Just("t in [time(\"2013-01-01T10:00:00Z\")]".to_owned()),
        Just("x in [1, 0.5]".to_owned()),
        Just("s == null".to_owned()),
        Just("l != null".to_owned()),
        Just("exists(x)".to_owned()),
        Just("contains(s, \"a\")".to_owned()),
        Just("matches(z, \"^a\")".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| format!("not ({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("if({a}, {b}, {c})")),
        ]
    })
}

fn maybe<T: std::fmt::Debug + 'static>(
    inner: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.8, inner)
}

/// Generates a random event as JSON.
fn event() -> impl Strategy<Value = String> {
    let minute = || (0_u32..180).prop_map(|m| format!("\"2013-01-01T{:02}:{:02}:00Z\"", 9 + m / 60, m % 60));
    let word =
        || prop_oneof![Just("a"), Just("b"), Just("ab"), Just(""), Just("ä")].prop_map(|s| format!("{s:?}"));
    let number = || prop_oneof![Just(-1.5), Just(0.0), Just(0.5), Just(1.0), Just(2.0), Just(1e300)];
    (
        maybe(prop_oneof![-3_i32..4, Just(i32::MIN)]),
        maybe(prop_oneof![-3_i64..4, Just(i64::MAX), Just(i64::MIN), Just((1 << 53) + 1)]),
        maybe(prop_oneof![Just(-1.5), Just(0.0), Just(0.5), Just(1.0)]),
        maybe(number()),
        maybe(word()),
        maybe(word()),
        maybe(any::<bool>()),
        maybe(minute()),
        maybe(minute()),
    )
        .prop_map(|(i, l, f, x, s, z, b, t, u)| {
            let mut json = String::from("{\"_time\": \"2013-01-01T10:00:00Z\"");
            let mut put = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    let _ = write!(json, ", \"{name}\": {value}");
                }
            };
            put("i", i.map(|v| v.to_string()));
            put("l", l.map(|v| v.to_string()));
            put("f", f.map(|v: f64| format!("{v:?}")));
            put("x", x.map(|v: f64| format!("{v:?}")));
            put("s", s);
            put("z", z);
            put("b", b.map(|v| v.to_string()));
            put("t", t);
            put("u", u);
            json.push('}');
            json
        })
}

fn compile(conditions: &[String], indexed: bool) -> Program {
    let mut text = String::from(EVENT);
    text.push_str("event Out { i: int };\n");
    for (n, condition) in conditions.iter().enumerate() {
        let _ = writeln!(
            text,
            "rule R{n} priority {} {{ when {{ e: E({condition}); }} then {{ emit Out(1); }} }}",
            n % 3
        );
    }
    let mut sources = tidemill_lang::Sources::default();
    sources.add("random.rules", text.as_str());
    let compiled = if indexed { Program::compile(&sources) } else { Program::compile_unindexed(&sources) };
    compiled.unwrap_or_else(|d| panic!("{}", tidemill_lang::render_all(&d, &sources)))
}

fn events(program: &Program, rows: &[String]) -> RecordBatch {
    batch(&program.streams()[0], &rows.iter().map(String::as_str).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn vectorised_is_row_wise(condition in condition(), rows in prop::collection::vec(event(), 1..150), skip in 0_usize..9) {
        let program = compile(std::slice::from_ref(&condition), true);
        let all = events(&program, &rows);
        // a slice has offsets in its buffers
        let batch = all.slice(skip.min(rows.len() - 1), rows.len() - skip.min(rows.len() - 1));
        let columns = Columns::new(&program.streams()[0], &batch).unwrap();
        for check in &program.plans()[0].checks {
            let op = BoolOp::compile(&check.expr);
            for start in (0..columns.rows).step_by(ROWS) {
                let len = (columns.rows - start).min(ROWS);
                let block = RowBlock { columns: &columns, start, len };
                let tri = op.eval(&block, block.all());
                for i in 0..len {
                    let expected = truth(&check.expr, &Bindings::new(Row::Batch(&columns, start + i)));
                    let found = match (tri.true_rows >> i & 1, tri.false_rows >> i & 1) {
                        (1, 0) => Some(true),
                        (0, 1) => Some(false),
                        (0, 0) => None,
                        both => panic!("true and false at once: {both:?}"),
                    };
                    prop_assert_eq!(found, expected, "{} in row {}", condition, start + i);
                }
            }
        }
    }

    #[test]
    fn indexed_is_unindexed(
        conditions in prop::collection::vec(indexable(), 1..60),
        rows in prop::collection::vec(event(), 1..150),
    ) {
        let (indexed, plain) = (compile(&conditions, true), compile(&conditions, false));
        let batch = events(&indexed, &rows);
        let columns = Columns::new(&indexed.streams()[0], &batch).unwrap();
        prop_assert_eq!(indexed.stream_rules(0).select_all(&columns), plain.stream_rules(0).select_all(&columns));
        // also row at a time, which is how emitted events are matched
        let (mut space, mut one_by_one) = (Default::default(), Vec::new());
        for row in 0..columns.rows {
            indexed.stream_rules(0).select_row(Row::Batch(&columns, row), 0, &mut space);
            one_by_one.extend(space.hits.drain(..).map(|hit: u64| (row, hit as u32)));
        }
        prop_assert_eq!(one_by_one, plain.stream_rules(0).select_all(&columns));
    }
}

/// Generates conditions that an index may decide, mixed with others.
fn indexable() -> impl Strategy<Value = String> {
    let word = || prop_oneof![Just("\"a\""), Just("\"b\""), Just("\"ab\""), Just("\"none\"")];
    let number = || prop_oneof![Just("-1.5"), Just("0"), Just("0.5"), Just("1"), Just("1e300"), Just("2.0")];
    let one = prop_oneof![
        (-3_i64..4).prop_map(|n| format!("i == {n}")),
        (-3_i64..4).prop_map(|n| format!("{n} == l")),
        word().prop_map(|w| format!("s == {w}")),
        (word(), word()).prop_map(|(a, b)| format!("s in [{a}, {b}]")),
        (-3_i64..4, -3_i64..4).prop_map(|(a, b)| format!("i in [{a}, {b}, {a}]")),
        (comparison(), -3_i64..4).prop_map(|(op, n)| format!("i {op} {n}")),
        (comparison(), number()).prop_map(|(op, n)| format!("x {op} {n}")),
        (comparison(), number()).prop_map(|(op, n)| format!("{n} {op} f")),
        (comparison(), 0_u32..60).prop_map(|(op, m)| format!("t {op} time(\"2013-01-01T10:{m:02}:00Z\")")),
        Just("b".to_owned()),
        Just("u > t".to_owned()),
    ];
    prop::collection::vec(one, 1..4).prop_map(|parts| parts.join(" and "))
}
