//! Random apps: some streams, a table, a named window, and queries of every kind that read them and each
//! other.

use std::fmt::Write as _;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tidemill_types::FieldType;

use super::expr::{Names, aggregate, any_type, condition, expr};

/// Generated app.
pub struct Generated {
    pub text: String,
    /// Streams to send events to.
    pub inputs: Vec<(String, Names)>,
    /// Whether sending events in one call or one per call gives equal results.
    pub by_event: bool,
    /// Whether the state is bounded, provided that `k` and `v` have few values, `t` is close to the current
    /// time, and time advances.
    pub bounded: bool,
}

struct Making<'r> {
    rng: &'r mut StdRng,
    text: String,
    /// Streams that queries can read, with their attributes.
    streams: Vec<(String, Names)>,
    outputs: usize,
    by_event: bool,
    bounded: bool,
    /// Whether the table has at most one row per value of its key.
    keyed: bool,
    /// Whether the named window `W` exists.
    shares: bool,
}

const UNITS: [&str; 5] = ["300 milliseconds", "1 sec", "1500", "2 sec", "5 sec"];

pub fn generate(rng: &mut StdRng) -> Generated {
    let mut text = "@app:name('random') @app:playback\n".to_owned();
    let mut streams = Vec::new();
    for i in 0..rng.random_range(1..4) {
        let mut names: Names = vec![
            ("k".into(), FieldType::String),
            ("v".into(), FieldType::Int),
            ("t".into(), FieldType::Long),
        ];
        for a in 0..rng.random_range(0..4) {
            names.push((format!("a{a}"), any_type(rng)));
        }
        let listed: Vec<String> = names.iter().map(|(n, ty)| format!("{n} {}", ty.name())).collect();
        let _ = writeln!(text, "define stream S{i} ({});", listed.join(", "));
        streams.push((format!("S{i}"), names));
    }
    let keyed = ["", "@primaryKey('k') ", "@index('v') ", "@primaryKey('k', 'v') "].choose(rng).unwrap();
    let _ = writeln!(text, "{keyed}define table T (k string, v int);");
    let shares = rng.random_bool(0.4);
    if shares {
        let window = window(rng);
        let kind = ["", " output all events", " output expired events", " output current events"];
        let kind = kind.choose(rng).unwrap();
        let _ = writeln!(text, "define window W (k string, v int, t long) {window}{kind};");
    }
    let inputs = streams.clone();
    let keyed = keyed.contains("Key");
    let mut making = Making { rng, text, streams, outputs: 0, by_event: true, bounded: true, keyed, shares };
    // a single query can be batched more often than several that feed each other
    let queries = if making.rng.random_bool(0.4) { 1 } else { making.rng.random_range(2..5) };
    for _ in 0..queries {
        making.query();
    }
    // a failing event fails the other events of its call as well, and `str:` functions fail at nulls
    let by_event = making.by_event && !making.text.contains("str:");
    // an `expressionBatch` may wait for a sum that is never reached
    let bounded =
        making.bounded && !making.text.contains("expressionBatch") && !keeps_more_and_more(&making.text);
    Generated { text: making.text, inputs, by_event, bounded }
}

/// Returns whether the state may grow because the removal of rows goes unnoticed. Some windows emit no
/// expired events. A snapshot keeps a row if the select clause drops its expired event, or if that event
/// differs from the emitted one: an outer join may emit an event without a match that has a match when it
/// expires. A chunk with a failing event, such as a `str:` function of null, removes nothing either.
fn keeps_more_and_more(app: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| app.contains(word));
    let untold = any(&["delay(", "requent("]);
    let cut = any(&[" limit ", " having ", "eventTimestamp(", " outer join ", "str:"]);
    app.contains("output snapshot") && (untold || cut) || untold && any(&[" max(", " min("])
}

/// Returns whether the attribute with this name has few values.
fn few(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name);
    name != "t" && !name.starts_with('c')
}

/// Returns a window that reads `k`, `v` and `t`.
fn window(rng: &mut StdRng) -> String {
    let n = rng.random_range(1..5);
    let unit = *UNITS.choose(rng).unwrap();
    match rng.random_range(0..22) {
        0 => format!("length({n})"),
        1 => format!("lengthBatch({n})"),
        2 => format!("time({unit})"),
        3 => format!("timeBatch({unit})"),
        4 => format!("timeLength({unit}, {n})"),
        5 => format!("externalTime(t, {unit})"),
        6 => format!("externalTimeBatch(t, {unit})"),
        7 => "batch()".into(),
        8 => format!("batch({n})"),
        9 => "session(2 sec, k)".into(),
        10 => "session(1 sec)".into(),
        11 => format!("frequent({n}, k)"),
        12 => "lossyFrequent(0.3, 0.1, k)".into(),
        13 => format!("delay({unit})"),
        14 => format!("expression('count() <= {n}')"),
        15 => format!("expressionBatch('sum(v) < {n}')"),
        16 => "cron('*/2 * * * * ?')".into(),
        17 => format!("unique:length(k, {n})"),
        18 => format!("unique:time(k, {unit})"),
        19 => "unique:ever(k)".into(),
        20 => format!("lengthBatch({n}, true)"),
        _ => format!("timeBatch({unit}, 0, true)"),
    }
}

impl Making<'_> {
    fn query(&mut self) {
        match self.rng.random_range(0..10) {
            0..4 => self.plain(),
            4 => self.join(),
            5..7 => self.pattern(),
            7 => self.table(),
            8 => self.named_window(),
            _ => self.partition(),
        }
    }

    fn source(&mut self) -> (String, Names) {
        self.streams.choose(self.rng).unwrap().clone()
    }

    fn target(&mut self) -> String {
        self.outputs += 1;
        format!("Out{}", self.outputs)
    }

    fn filter(&mut self, names: &Names) -> String {
        match self.rng.random_bool(0.3) {
            true => format!("[{}]", condition(self.rng, names, 2)),
            false => String::new(),
        }
    }

    fn handler(&mut self, names: &Names) -> String {
        let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
        match self.rng.random_range(0..20) {
            0 if has("t", FieldType::Long) => {
                self.by_event = false;
                "#reorder:kslack(t, 800L)".into()
            }
            1 if has("k", FieldType::String) => {
                self.by_event = false;
                "#unique:deduplicate(k, 1 sec)".into()
            }
            2 if has("v", FieldType::Int) => {
                self.by_event = false;
                "[count() % 3 != 0]".into()
            }
            _ => self.filter(names),
        }
    }

    /// Generates a select clause with the clauses that follow; returns it with its output columns.
    fn select(&mut self, names: &Names, sees_input: bool) -> (String, Names) {
        let mut items = Vec::new();
        let mut out: Names = Vec::new();
        let aggregates = self.rng.random_bool(0.5);
        for i in 0..self.rng.random_range(1..4) {
            let (text, ty) = match aggregates && self.rng.random_bool(0.6) {
                true => {
                    let (text, ty) = aggregate(self.rng, names);
                    let of = text.strip_prefix("distinctCount(").and_then(|of| of.strip_suffix(')'));
                    self.bounded &= of.is_none_or(few);
                    (text, ty)
                }
                false => {
                    let ty = any_type(self.rng);
                    (expr(self.rng, ty, names, 2), ty)
                }
            };
            items.push(format!("{text} as c{i}"));
            out.push((format!("c{i}"), ty));
        }
        for (name, ty) in [("k", FieldType::String), ("v", FieldType::Int), ("t", FieldType::Long)] {
            let source =
                names.iter().find(|(n, t)| *t == ty && (n == name || n.ends_with(&format!(".{name}"))));
            if let Some((source, _)) = source {
                items.push(format!("{source} as {name}"));
                out.push((name.into(), ty));
            }
        }
        let mut text = format!("select {}", items.join(", "));
        let grouped = self.rng.random_bool(0.3);
        if grouped {
            let by = &names.choose(self.rng).unwrap().0;
            self.bounded &= few(by);
            let _ = write!(text, " group by {by}");
        }
        if aggregates || grouped {
            self.by_event = false;
        }
        if self.rng.random_bool(0.25) {
            let mut seen = out.clone();
            if sees_input {
                seen.extend(names.iter().filter(|(n, _)| n.contains('.')).cloned());
            }
            let _ = write!(text, " having {}", condition(self.rng, &seen, 1));
        }
        if self.rng.random_bool(0.2) {
            self.by_event = false;
            let by = &out.choose(self.rng).unwrap().0;
            let _ = write!(text, " order by {by} {}", ["asc", "desc"].choose(self.rng).unwrap());
        }
        if self.rng.random_bool(0.15) {
            self.by_event = false;
            let _ =
                write!(text, " limit {} offset {}", self.rng.random_range(0..4), self.rng.random_range(0..2));
        }
        (text, out)
    }

    fn output(&mut self, target: &str) -> String {
        let every = UNITS.choose(self.rng).unwrap().replace("1500", "1500 milliseconds");
        let count = self.rng.random_range(1..4);
        let which = *["", "all ", "first ", "last "].choose(self.rng).unwrap();
        let rate = match self.rng.random_range(0..12) {
            0 => format!("output {which}every {count} events "),
            1 => format!("output {which}every {every} "),
            2 => {
                self.by_event = false;
                return format!("output snapshot every {every} insert all events into {target}");
            }
            _ => String::new(),
        };
        if !rate.is_empty() {
            self.by_event = false;
        }
        let kind = ["", "", "current events ", "expired events ", "all events "].choose(self.rng).unwrap();
        format!("{rate}insert {kind}into {target}")
    }

    fn add(&mut self, query: &str, target: String, out: Names) {
        let _ = writeln!(self.text, "@info(name='{target}') {query};");
        self.streams.push((target, out));
    }

    fn plain(&mut self) {
        let (source, names) = self.source();
        let mut input = format!("{source}{}", self.handler(&names));
        let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
        let keyed = has("k", FieldType::String) && has("v", FieldType::Int) && has("t", FieldType::Long);
        if keyed && source != "W" && self.rng.random_bool(0.6) {
            self.by_event = false;
            let _ = write!(input, "#window.{}", window(self.rng));
            input.push_str(&self.filter(&names));
        }
        let (select, out) = self.select(&names, false);
        let target = self.target();
        let output = self.output(&target);
        self.add(&format!("from {input} {select} {output}"), target, out);
    }

    fn join(&mut self) {
        self.by_event = false;
        let mut sides = Vec::new();
        let mut all: Names = Vec::new();
        for alias in ["l", "r"] {
            let searched = alias == "r" && self.rng.random_bool(0.3);
            let (source, names) = match searched {
                true => (
                    "T".to_owned(),
                    vec![("k".to_owned(), FieldType::String), ("v".to_owned(), FieldType::Int)],
                ),
                false => self.source(),
            };
            let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
            let keyed = has("k", FieldType::String) && has("v", FieldType::Int) && has("t", FieldType::Long);
            let mut side = source.clone();
            if !searched {
                side.push_str(&self.filter(&names));
                if keyed && source != "W" {
                    let _ = write!(side, "#window.{}", window(self.rng));
                } else if source != "W" {
                    side.push_str("#window.length(2)");
                }
            }
            sides.push(format!("{side} as {alias}"));
            all.extend(names.iter().map(|(n, ty)| (format!("{alias}.{n}"), *ty)));
        }
        let word =
            ["join", "left outer join", "right outer join", "full outer join"].choose(self.rng).unwrap();
        let on = match self.rng.random_bool(0.8) {
            true => format!(" on {}", condition(self.rng, &all, 1)),
            false => String::new(),
        };
        let (select, out) = self.select(&all, true);
        let target = self.target();
        let output = self.output(&target);
        self.add(&format!("from {} {word} {}{on} {select} {output}", sides[0], sides[1]), target, out);
    }

    fn pattern(&mut self) {
        self.by_event = false;
        let sequence = self.rng.random_bool(0.3);
        let mut steps = Vec::new();
        let mut all: Names = Vec::new();
        for i in 1..self.rng.random_range(3..5) {
            let (source, names) = self.source();
            let last: Names = all.iter().filter(|(_, ty)| *ty == FieldType::Int).cloned().collect();
            let mut seen = names.clone();
            seen.extend(last);
            let filter = match self.rng.random_bool(0.5) {
                true => format!("[{}]", condition(self.rng, &seen, 1)),
                false => String::new(),
            };
            let step = format!("e{i}={source}{filter}");
            let step = match self.rng.random_range(0..9) {
                0 if !sequence => format!("{step}<1:2>"),
                0 if i == 1 => format!("{step}+"),
                1 if i > 1 && !sequence => {
                    steps.push(format!("not {source}{} for 1 sec", filter));
                    continue;
                }
                2 if i > 1 => {
                    let (other, names) = self.source();
                    all.extend(names.iter().map(|(n, ty)| (format!("o{i}.{n}"), *ty)));
                    format!("({step} {} o{i}={other})", ["and", "or"].choose(self.rng).unwrap())
                }
                _ => step,
            };
            match step.ends_with(['>', '+']) {
                true => all.extend(names.iter().map(|(n, ty)| (format!("e{i}[last].{n}"), *ty))),
                false => all.extend(names.iter().map(|(n, ty)| (format!("e{i}.{n}"), *ty))),
            }
            steps.push(step);
        }
        let every = if self.rng.random_bool(0.7) { "every " } else { "" };
        let within = if self.rng.random_bool(0.5) { " within 3 sec" } else { "" };
        self.bounded &= !within.is_empty();
        let (select, out) = self.select(&all, true);
        let target = self.target();
        let output = self.output(&target);
        let chain = steps.join(if sequence { ", " } else { " -> " });
        self.add(&format!("from {every}{chain}{within} {select} {output}"), target, out);
    }

    fn table(&mut self) {
        self.by_event = false;
        let (source, names) = self.source();
        let row: Names = names.iter().filter(|(n, _)| n == "k" || n == "v").cloned().collect();
        if row.len() < 2 {
            return;
        }
        let output = match self.rng.random_range(0..5) {
            0 => "delete T on T.v > v".to_owned(),
            1 => "update T set T.v = v on T.k == k".to_owned(),
            2 => "update or insert into T on T.k == k".to_owned(),
            _ => "insert into T".to_owned(),
        };
        self.bounded &= self.keyed || !output.contains("insert");
        let filter = self.filter(&names);
        let _ = writeln!(self.text, "from {source}{filter} select k, v {output};");
        if self.rng.random_bool(0.6) {
            let (source, names) = self.source();
            let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
            if has("v", FieldType::Int) {
                let (select, out) = self.select(&names, false);
                let target = self.target();
                let op = ["==", ">", "<="].choose(self.rng).unwrap();
                let query =
                    format!("from {source}[(T.v {op} {source}.v) in T] {select} insert into {target}");
                self.add(&query, target, out);
            }
        }
    }

    fn named_window(&mut self) {
        if !self.shares {
            return self.plain();
        }
        self.by_event = false;
        let (source, names) = self.source();
        let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
        let keyed = has("k", FieldType::String) && has("v", FieldType::Int) && has("t", FieldType::Long);
        if source == "W" || !keyed {
            return;
        }
        let _ = writeln!(self.text, "from {source} select k, v, t insert into W;");
        let columns = vec![
            ("k".into(), FieldType::String),
            ("v".into(), FieldType::Int),
            ("t".into(), FieldType::Long),
        ];
        if !self.streams.iter().any(|(name, _)| name == "W") {
            self.streams.push(("W".into(), columns));
        }
    }

    fn partition(&mut self) {
        self.by_event = false;
        let (source, names) = self.source();
        let key = match self.rng.random_bool(0.7) {
            true => {
                let by = names.choose(self.rng).unwrap().0.clone();
                self.bounded &= few(&by);
                by
            }
            false => format!(
                "{} as 'some' or {} as 'more'",
                condition(self.rng, &names, 1),
                condition(self.rng, &names, 0)
            ),
        };
        let has = |name: &str, ty| names.iter().any(|(n, t)| n == name && *t == ty);
        let keyed = has("k", FieldType::String) && has("v", FieldType::Int) && has("t", FieldType::Long);
        let input = match keyed && source != "W" {
            true => format!("{source}#window.{}", window(self.rng)),
            false => source.clone(),
        };
        let (select, out) = self.select(&names, false);
        let target = self.target();
        let output = self.output(&target);
        let _ = writeln!(
            self.text,
            "partition with ({key} of {source}) begin @info(name='{target}') from {input} {select} {output}; end;"
        );
        self.streams.push((target, out));
    }
}
