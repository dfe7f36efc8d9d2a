//! Joins compared with nested loops over plain lists, on random events.
//!
//! The lists model the windows: the events of `length(n)` and `time(t)`, none without a window.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidemill_flow::app_stores::AppStores;
use tidemill_flow::batch::EventKind;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::query::Query;
use tidemill_flow::replay::compile;
use tidemill_flow::{Batch, Registry, Value};
use tidemill_types::FieldType;

type Row = Vec<Value>;
type Condition = fn(&Row, &Row) -> bool;

/// Conditions on the columns `k`, `s`, `v` of both sides; the type of `k` varies from run to run.
const CONDITIONS: &[(&str, Condition)] = &[
    ("", |_, _| true),
    ("on a.k == b.k", |a, b| same(&a[0], &b[0])),
    ("on b.s == a.s", |a, b| same(&a[1], &b[1])),
    ("on a.s == b.s and a.k == b.k", |a, b| same(&a[1], &b[1]) && same(&a[0], &b[0])),
    ("on a.v < b.v and b.k == a.k", |a, b| less(&a[2], &b[2]) && same(&a[0], &b[0])),
    ("on a.k == b.v", |a, b| same(&a[0], &b[2])),
    ("on a.k + 1 == b.k", |a, b| number(&a[0]).zip(number(&b[0])).is_some_and(|(a, b)| a + 1.0 == b)),
    ("on a.k == b.k or a.s == b.s", |a, b| same(&a[0], &b[0]) || same(&a[1], &b[1])),
    ("on a.s == b.s and (a.k != b.k or b.v > 1L)", |a, b| {
        same(&a[1], &b[1]) && (!same(&a[0], &b[0]) || less(&Value::Long(1), &b[2]))
    }),
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

/// Window of a side.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    None,
    Length(usize),
    Time(i64),
}

/// Model of one side of the join.
struct Side {
    window: Window,
    held: VecDeque<(i64, Row)>,
}

impl Side {
    /// Adds a row; returns the output of the window, in order.
    fn arrive(&mut self, time: i64, row: &Row, expired: bool) -> Vec<(EventKind, Row)> {
        let mut out = Vec::new();
        match self.window {
            Window::None => {
                out.push((EventKind::Current, row.clone()));
                if expired {
                    out.push((EventKind::Expired, row.clone()));
                }
                return out;
            }
            Window::Length(n) if self.held.len() == n => {
                let (_, oldest) = self.held.pop_front().unwrap();
                out.push((EventKind::Expired, oldest));
            }
            Window::Length(_) | Window::Time(_) => {}
        }
        out.push((EventKind::Current, row.clone()));
        self.held.push_back((time, row.clone()));
        out
    }

    /// Returns the rows that expire when time reaches `now`.
    fn leave(&mut self, now: i64) -> Vec<(EventKind, Row)> {
        let Window::Time(span) = self.window else { return vec![] };
        let mut out = Vec::new();
        while self.held.front().is_some_and(|(time, _)| *time + span <= now) {
            out.push((EventKind::Expired, self.held.pop_front().unwrap().1));
        }
        out
    }
}

struct Run {
    plan: AppPlan,
    on: Condition,
    sides: [Side; 2],
    triggers: [bool; 2],
    outer: [bool; 2],
    expired: bool,
}

impl Run {
    /// Returns the matches of a side's window output, as strings.
    fn matched(&self, side: usize, out: &[(EventKind, Row)]) -> Vec<String> {
        let mut texts = Vec::new();
        for (kind, row) in out.iter().filter(|_| self.triggers[side]) {
            if *kind == EventKind::Expired && !self.expired {
                continue;
            }
            let mut show = |other: Option<&Row>| {
                let nulls = vec![Value::Null; 3];
                let other = other.unwrap_or(&nulls);
                let (left, right) = if side == 0 { (row, other) } else { (other, row) };
                let values = [&left[0], &left[1], &right[1], &right[2]];
                texts.push(format!("{kind:?} {values:?}"));
            };
            let before = {
                let mut any = false;
                for (_, other) in &self.sides[1 - side].held {
                    let (left, right) = if side == 0 { (row, other) } else { (other, row) };
                    if (self.on)(left, right) {
                        show(Some(other));
                        any = true;
                    }
                }
                any
            };
            if !before && self.outer[side] {
                show(None);
            }
        }
        texts
    }
}

fn setup(rng: &mut StdRng) -> Run {
    let types = ["int", "long", "float", "double"];
    let (left, right) = (*types.choose(rng).unwrap(), *types.choose(rng).unwrap());
    let windows = [0, 1].map(|_| match rng.random_range(0..5) {
        0 => Window::None,
        1 | 2 => Window::Length(rng.random_range(1..12)),
        _ => Window::Time(rng.random_range(1..30)),
    });
    let text = |window: Window| match window {
        Window::None => String::new(),
        Window::Length(n) => format!("#window.length({n})"),
        Window::Time(span) => format!("#window.time({span} milliseconds)"),
    };
    let (word, outer) = *[
        ("join", [false, false]),
        ("left outer join", [true, false]),
        ("right outer join", [false, true]),
        ("full outer join", [true, true]),
    ]
    .choose(rng)
    .unwrap();
    let (one, triggers) = *[
        (["", ""], [true, true]),
        (["", ""], [true, true]),
        (["unidirectional", ""], [true, false]),
        (["", "unidirectional"], [false, true]),
    ]
    .choose(rng)
    .unwrap();
    let (on, condition) = *CONDITIONS.choose(rng).unwrap();
    let expired = rng.random_bool(0.5);
    let app = format!(
        "define stream L (k {left}, s string, v long); define stream R (k {right}, s string, v long);
         from L{} as a {} {word} R{} as b {} {on}
         select a.k as k, a.s as ls, b.s as rs, b.v as v insert {} into Out;",
        text(windows[0]),
        one[0],
        text(windows[1]),
        one[1],
        if expired { "all events" } else { "" },
    );
    let plan = compile("app", &app, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}"));
    let sides = windows.map(|window| Side { window, held: VecDeque::new() });
    Run { plan, on: condition, sides, triggers, outer, expired }
}

fn random_row(rng: &mut StdRng, types: &[FieldType], keys: i32) -> Row {
    let value = |ty: &FieldType| {
        let n = rng.random_range(0..keys);
        match ty {
            _ if rng.random_ratio(1, 10) => Value::Null,
            FieldType::Int => Value::Int(n),
            FieldType::Long => Value::Long(n.into()),
            FieldType::Float => Value::Float(if n == 0 { -0.0 } else { n as f32 }),
            FieldType::Double => Value::Double(if n == 1 { f64::NAN } else { f64::from(n) }),
            _ => Value::text(&"x".repeat(n as usize)),
        }
    };
    types.iter().map(value).collect()
}

fn texts(out: &Batch) -> Vec<String> {
    (0..out.len())
        .map(|i| format!("{:?} {:?}", out.kinds[i], out.columns.iter().map(|c| c.get(i)).collect::<Vec<_>>()))
        .collect()
}

fn run(seed: u64) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let mut model = setup(rng);
    let types: [Vec<FieldType>; 2] = [0, 1].map(|i| {
        let attributes = &model.plan.catalog.streams()[i].attributes;
        attributes.iter().map(|(_, ty)| *ty).collect()
    });
    let host = AppStores::default();
    let mut query = Query::new(model.plan.queries[0].clone());
    query.start(0);
    let timed = model.sides.iter().any(|s| matches!(s.window, Window::Time(_)));
    let keys = *[3, 30].choose(rng).unwrap();
    let mut now = 0;
    for step in 0..60 {
        now += rng.random_range(0..8);
        // the timers of the left side run before those of the right side
        let mut expected = Vec::new();
        for side in 0..2 {
            let out = model.sides[side].leave(now);
            expected.extend(model.matched(side, &out));
        }
        let mut found = Vec::new();
        while let Some(out) = query.fire_timer(now, &host) {
            found.extend(texts(&out.unwrap()));
        }
        assert_eq!(found, expected, "seed {seed}, step {step}, timers at {now}");
        // without timers, several chunks arrive in one batch and alternate between the sides
        let count = if timed { 1 } else { rng.random_range(1..20) };
        let mut batches = types.clone().map(Batch::new);
        let mut turns = Vec::new();
        expected.clear();
        for _ in 0..count {
            let side = rng.random_range(0..2);
            let events = rng.random_range(1..4);
            let mut out = Vec::new();
            for _ in 0..events {
                let row = random_row(rng, &types[side], keys);
                out.extend(model.sides[side].arrive(now, &row, model.expired));
                batches[side].columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
                batches[side].times.push(now);
                batches[side].kinds.push(EventKind::Current);
            }
            batches[side].end_chunk(now);
            turns.push((side, 1));
            expected.extend(model.matched(side, &out));
        }
        let [left, right] = &batches;
        let out = query.interleave(&[(0, left), (1, right)], turns, &host).unwrap();
        assert_eq!(texts(&out), expected, "seed {seed}, step {step} at {now}");
    }
}

#[test]
fn matches_are_those_of_nested_loops() {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => run(seed),
        None => (0..300).for_each(run),
    }
}
