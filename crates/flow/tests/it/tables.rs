//! Tables with keys and indexes compared with a plain list of rows, on random events.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidemill_flow::EvalError;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, Registry, Value};
use tidemill_types::FieldType;

/// Columns of the table and of its events: `k`, `s`, `v`, `n`; an event has its action as the first column.
type Row = Vec<Value>;

const KEYS: &[&str] =
    &["", "@primaryKey('k')", "@primaryKey('s')", "@primaryKey('s', 'k')", "@primaryKey('n', 's')"];
const INDEXES: &[&str] = &["", "@index('v')", "@index('s')", "@index('n') @index('v')", "@index('k')"];
const NUMBERS: &[&str] = &["int", "long", "float", "double"];

/// Whether a row matches an event.
type Condition = fn(&Row, &Row) -> bool;

const CONDITIONS: &[(&str, Condition)] = &[
    ("T.k == k", |r, e| same(&r[0], &e[0])),
    ("s == T.s", |r, e| same(&r[1], &e[1])),
    ("T.s == s and T.k == k", |r, e| same(&r[1], &e[1]) && same(&r[0], &e[0])),
    ("T.s == s and T.n == n", |r, e| same(&r[1], &e[1]) && same(&r[3], &e[3])),
    ("T.s == s and T.k > k and T.n == n", |r, e| {
        same(&r[1], &e[1]) && less(&e[0], &r[0]) && same(&r[3], &e[3])
    }),
    ("T.v == v", |r, e| same(&r[2], &e[2])),
    ("T.v == n", |r, e| same(&r[2], &e[3])),
    ("T.n == v", |r, e| same(&r[3], &e[2])),
    ("T.v > v", |r, e| less(&e[2], &r[2])),
    ("v <= T.v and T.v < 2.0", |r, e| at_most(&e[2], &r[2]) && less(&r[2], &Value::Double(2.0))),
    ("T.n <= n and T.n >= 1L", |r, e| at_most(&r[3], &e[3]) && at_most(&Value::Long(1), &r[3])),
    ("T.k < k", |r, e| less(&r[0], &e[0])),
    ("T.k >= k and not (T.s == s)", |r, e| at_most(&e[0], &r[0]) && !same(&r[1], &e[1])),
    ("T.k == k or T.s == s", |r, e| same(&r[0], &e[0]) || same(&r[1], &e[1])),
    ("T.n == n and T.v != v", |r, e| same(&r[3], &e[3]) && !same(&r[2], &e[2])),
];

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a == b,
        _ => number(a).zip(number(b)).is_some_and(|(a, b)| a == b),
    }
}

fn less(a: &Value, b: &Value) -> bool {
    number(a).zip(number(b)).is_some_and(|(a, b)| a < b)
}

fn at_most(a: &Value, b: &Value) -> bool {
    number(a).zip(number(b)).is_some_and(|(a, b)| a <= b)
}

/// Model of a table: a list of rows that is always scanned.
struct Model {
    /// Key columns.
    key: Vec<usize>,
    rows: Vec<Row>,
}

impl Model {
    fn key_of(&self, row: &Row) -> Option<String> {
        match self.key.as_slice() {
            [] => None,
            [column] if row[*column].is_null() => Some("\0".into()),
            [column] => Some(row[*column].to_string()),
            columns => Some(columns.iter().fold(String::new(), |mut text, c| {
                let _ = write!(text, "{}:-:", row[*c]);
                text
            })),
        }
    }

    fn ordered(&self) -> Option<usize> {
        match self.key.as_slice() {
            [1] => None,
            [column] => Some(*column),
            _ => None,
        }
    }

    fn sort(&mut self) {
        if let Some(column) = self.ordered() {
            self.rows.sort_by(|a, b| match (&a[column], &b[column]) {
                (Value::Int(a), Value::Int(b)) => a.cmp(b),
                (Value::Long(a), Value::Long(b)) => a.cmp(b),
                (a, b) => number(a).unwrap().total_cmp(&number(b).unwrap()),
            });
        }
    }

    /// Returns whether the row's key is free, ignoring row `except`.
    fn has_room(&self, row: &Row, except: Option<usize>) -> bool {
        let key = self.key_of(row);
        let taken = self.rows.iter().enumerate().any(|(i, r)| Some(i) != except && self.key_of(r) == key);
        (key.is_none() || !taken) && self.ordered().is_none_or(|column| !row[column].is_null())
    }

    /// Inserts a row; returns false if that fails.
    fn insert(&mut self, row: &Row) -> bool {
        if self.ordered().is_some_and(|column| row[column].is_null()) {
            return false;
        }
        if self.has_room(row, None) {
            self.rows.push(row.clone());
            self.sort();
        }
        true
    }

    fn update(&mut self, event: &Row, on: Condition, set: &[usize]) -> bool {
        let found: Vec<usize> = (0..self.rows.len()).filter(|i| on(&self.rows[*i], event)).collect();
        let mut after = Self { key: self.key.clone(), rows: self.rows.clone() };
        for i in &found {
            set.iter().for_each(|column| after.rows[*i][*column] = event[*column].clone());
        }
        // all matching rows change, or none
        let same_key = !set.iter().any(|column| self.key.contains(column));
        if same_key || found.iter().all(|i| after.has_room(&after.rows[*i], Some(*i))) {
            self.rows = after.rows;
        }
        self.sort();
        !found.is_empty()
    }
}

#[derive(Default)]
struct Seen {
    rows: BTreeMap<String, Vec<String>>,
    failures: usize,
}

impl OutputHandler for Seen {
    fn events(&mut self, stream: &str, events: &Batch) {
        self.rows.entry(stream.to_owned()).or_default().extend(texts(events));
    }
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, _: &str, _: &EvalError) {
        self.failures += 1;
    }
}

fn texts(rows: &Batch) -> Vec<String> {
    (0..rows.len())
        .map(|i| format!("{:?}", rows.columns.iter().map(|c| c.get(i)).collect::<Vec<_>>()))
        .collect()
}

fn random_value(rng: &mut StdRng, ty: FieldType, wide: bool) -> Value {
    if rng.random_ratio(1, 12) {
        return Value::Null;
    }
    let n = rng.random_range(0..if wide { 40 } else { 4 });
    let decimal = |rng: &mut StdRng| match rng.random_range(0..10) {
        0 => f64::NAN,
        1 => -0.0,
        2 => f64::from(n) + 0.5,
        _ => f64::from(n),
    };
    match ty {
        FieldType::Int => Value::Int(n),
        FieldType::Long => Value::Long(n.into()),
        FieldType::Float => Value::Float(decimal(rng) as f32),
        FieldType::Double => Value::Double(decimal(rng)),
        _ => Value::text(["a", "b:", ":-:c", "null", "", "a:-:b", "longer text"][n as usize % 7]),
    }
}

fn run(seed: u64) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let (key, index) = (*KEYS.choose(rng).unwrap(), *INDEXES.choose(rng).unwrap());
    let number = *NUMBERS.choose(rng).unwrap();
    let columns = format!("k {number}, s string, v double, n long");
    let pick = |rng: &mut StdRng| CONDITIONS[rng.random_range(0..CONDITIONS.len())];
    let on: [(&str, Condition); 6] = std::array::from_fn(|_| pick(rng));
    let sets: [(&str, &[usize]); 4] = [
        ("set T.v = v, T.n = n", &[2, 3]),
        ("set T.s = s", &[1]),
        ("", &[0, 1, 2, 3]),
        ("set T.n = n, T.k = k", &[0, 3]),
    ];
    let (update, upsert) = (*sets.choose(rng).unwrap(), *sets.choose(rng).unwrap());
    // in a join condition, plain names are ambiguous because both sides have them
    let joined = |on: &str| {
        let words = on.split_inclusive([' ', '(', ')']).map(|word| {
            let name = word.trim_end_matches([' ', '(', ')']);
            if ["k", "s", "v", "n"].contains(&name) { format!("E.{word}") } else { word.to_owned() }
        });
        words.collect::<String>()
    };
    let app = format!(
        "define stream E (op int, {columns});
         {key} {index} define table T ({columns});
         from E[op == 0] select k, s, v, n insert into T;
         from E[op == 1] select k, s, v, n delete T on {};
         from E[op == 2] select k, s, v, n update T {} on {};
         from E[op == 3] select k, s, v, n update or insert into T {} on {};
         from E[op == 4] join T on {} select T.k as k, T.s as s, T.v as v, T.n as n insert into Joined;
         from E[op == 4] left outer join T on {} select E.k as ek, T.k as k, T.s as s insert into Outer;
         from E[op == 5 and ({}) in T] select k, s, v, n insert into Inside;",
        on[0].0,
        update.0,
        on[1].0,
        upsert.0,
        on[2].0,
        joined(on[3].0),
        joined(on[4].0),
        on[5].0,
    );
    let plan =
        compile("app", &app, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let stream = plan.catalog.find("E").unwrap();
    let types: Vec<FieldType> = plan.catalog.streams()[stream].attributes.iter().map(|(_, ty)| *ty).collect();
    let key = plan.catalog.tables()[0].primary_key.clone();
    let mut app_run = AppRuntime::new(plan.into());
    app_run.start(0, &mut Seen::default());
    let mut model = Model { key, rows: vec![] };
    let wide = rng.random_bool(0.3);
    for step in 0..rng.random_range(20..120) {
        let op = if step < 10 { 0 } else { rng.random_range(0..6) };
        let events: Vec<Row> = (0..rng.random_range(1..6))
            .map(|_| types[1..].iter().map(|ty| random_value(rng, *ty, wide)).collect())
            .collect();
        let mut expected = Seen::default();
        let mut fails = false;
        for event in &events {
            let found = |on: Condition, rows: &[Row]| -> Vec<Row> {
                rows.iter().filter(|row| on(row, event)).cloned().collect()
            };
            match op {
                0 => fails |= !model.insert(event),
                1 => model.rows.retain(|row| !on[0].1(row, event)),
                2 => drop(model.update(event, on[1].1, update.1)),
                3 => fails |= !model.update(event, on[2].1, upsert.1) && !model.insert(event),
                4 => {
                    let rows = found(on[3].1, &model.rows);
                    expected
                        .rows
                        .entry("Joined".into())
                        .or_default()
                        .extend(rows.iter().map(|r| format!("{r:?}")));
                    let outer = expected.rows.entry("Outer".into()).or_default();
                    let rows = found(on[4].1, &model.rows);
                    outer.extend(rows.iter().map(|r| format!("{:?}", vec![&event[0], &r[0], &r[1]])));
                    if rows.is_empty() {
                        outer.push(format!("{:?}", vec![&event[0], &Value::Null, &Value::Null]));
                    }
                }
                _ => {
                    if !found(on[5].1, &model.rows).is_empty() {
                        expected.rows.entry("Inside".into()).or_default().push(format!("{event:?}"));
                    }
                }
            }
            if fails {
                break;
            }
        }
        expected.rows.retain(|_, rows| !rows.is_empty());
        let mut batch: Vec<Column> = types.iter().map(|ty| Column::new(*ty)).collect();
        for event in &events {
            batch[0].push(Value::Int(op));
            batch[1..].iter_mut().zip(event).for_each(|(column, value)| column.push(value.clone()));
        }
        let mut seen = Seen::default();
        app_run.send(stream, batch, vec![step; events.len()], &mut seen).unwrap();
        seen.rows.remove("E");
        assert_eq!(seen.rows, expected.rows, "seed {seed}, step {step}, {op} of {events:?} in\n{app}");
        assert_eq!(seen.failures > 0, fails, "seed {seed}, step {step}, {op} of {events:?} in\n{app}");
        let now: Vec<String> = texts(&app_run.on_demand("from T select k, s, v, n").unwrap());
        let rows: Vec<String> = model.rows.iter().map(|row| format!("{row:?}")).collect();
        assert_eq!(now, rows, "seed {seed}, step {step}, {op} of {events:?} in\n{app}");
    }
}

#[test]
fn keys_and_indexes_change_nothing_but_the_speed() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    match first {
        Some(seed) => run(seed),
        None => (0..100).for_each(run),
    }
}
