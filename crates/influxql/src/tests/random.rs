//! Random statements over rows in memory: none panics, and limits hold.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::memory::Points;
use crate::parse::{BoundValues, parse};
use crate::reply::{Epoch, ReplyFormat, ReplyWriter};
use crate::rows::MemoryPool;
use crate::run::Session;

fn pick<'t>(random: &mut StdRng, texts: &[&'t str]) -> &'t str {
    texts.choose(random).copied().unwrap_or_default()
}

const NAMES: &[&str] = &[
    "usage",
    "busy",
    "up",
    "note",
    "host",
    "region",
    "used",
    "nosuch",
    "*",
    "/u/",
    "time",
    "usage::integer",
];
const NUMBERS: &[&str] =
    &["0", "1", "-1", "2", "0.5", "9223372036854775807", "-9223372036854775807", "1000000"];
const DURATIONS: &[&str] = &["1u", "1s", "90s", "2m", "1h", "1d", "10000d", "0s", "15000w"];

fn expression(random: &mut StdRng, depth: u32) -> String {
    match random.random_range(0..if depth == 0 { 3 } else { 9 }) {
        0 | 1 => pick(random, NAMES).to_owned(),
        2 => pick(random, NUMBERS).to_owned(),
        3 => {
            let operator = pick(random, &["+", "-", "*", "/", "%", "&", "|", "^"]);
            format!("{} {operator} ({})", expression(random, depth - 1), expression(random, depth - 1))
        }
        4 => format!("{}({})", pick(random, &["abs", "sqrt", "round", "ln"]), expression(random, depth - 1)),
        5 => {
            let function = pick(random, &["percentile", "sample", "top", "bottom", "moving_average"]);
            format!("{function}({}, {})", expression(random, depth - 1), pick(random, NUMBERS))
        }
        6 => {
            let function = pick(random, &["derivative", "elapsed", "integral", "non_negative_derivative"]);
            format!("{function}({}, {})", expression(random, depth - 1), pick(random, DURATIONS))
        }
        7 => format!("count(distinct({}))", pick(random, NAMES)),
        _ => {
            let functions = [
                "count",
                "sum",
                "mean",
                "median",
                "mode",
                "spread",
                "stddev",
                "first",
                "last",
                "min",
                "max",
                "distinct",
                "difference",
                "cumulative_sum",
            ];
            format!("{}({})", pick(random, &functions), expression(random, depth - 1))
        }
    }
}

fn condition(random: &mut StdRng) -> String {
    match random.random_range(0..7) {
        0 => format!(
            "{} {} {}",
            expression(random, 1),
            pick(random, &["=", "!=", "<", ">="]),
            expression(random, 1)
        ),
        1 => format!("host {} /a|{}/", pick(random, &["=~", "!~"]), pick(random, &["b", "", "(c)"])),
        2 => format!("({} OR {})", condition(random), condition(random)),
        3 => format!("{} AND {}", condition(random), condition(random)),
        4 => format!("time {} {}", pick(random, &["<", ">", "=", ">="]), pick(random, NUMBERS)),
        5 => format!("time > now() - {}", pick(random, DURATIONS)),
        _ => "time >= '2026-01-05T08:00:00Z' AND time < '2026-01-05T08:10:00Z'".to_owned(),
    }
}

/// A column that is probably accepted beside others of its kind.
fn plain(random: &mut StdRng, is_call: bool) -> String {
    let name = pick(random, &["usage", "busy", "used", "usage", "*"]);
    if !is_call {
        return format!("{} + {}", pick(random, &["usage", "busy", "used"]), pick(random, NUMBERS));
    }
    let inner = format!(
        "{}({name})",
        pick(random, &["count", "sum", "mean", "mode", "stddev", "first", "max", "median"])
    );
    match random.random_range(0..6) {
        0 => format!("derivative({inner}, {})", pick(random, DURATIONS)),
        1 => format!("moving_average({inner}, 2)"),
        2 => format!("integral({name}, {})", pick(random, DURATIONS)),
        3 => format!("percentile({name}, {})", pick(random, NUMBERS)),
        _ => inner,
    }
}

fn select(random: &mut StdRng, depth: u32) -> String {
    let (is_plain, is_call) = (random.random_range(0..4) > 0, random.random());
    let column = |_| if is_plain { plain(random, is_call) } else { expression(random, 2) };
    let fields: Vec<String> = (0..3).map(column).take(if is_plain { 2 } else { 3 }).collect();
    let source = match random.random_range(0..6) {
        0 if depth > 0 => format!("({})", select(random, depth - 1)),
        1 => "/m|r/".to_owned(),
        2 => "cpu, mem".to_owned(),
        _ => pick(random, &["cpu", "mem", "requests"]).to_owned(),
    };
    let mut text = format!("SELECT {} FROM {source}", fields.join(", "));
    if random.random() {
        text += &format!(" WHERE {}", condition(random));
    }
    match random.random_range(0..5) {
        0 => text += &format!(" GROUP BY time({})", pick(random, DURATIONS)),
        1 => {
            text += &format!(" GROUP BY time({}, {}), host", pick(random, DURATIONS), pick(random, DURATIONS))
        }
        2 => text += &format!(" GROUP BY {}", pick(random, &["host", "*", "busy", "note", "/h/, region"])),
        _ => {}
    }
    text += pick(random, &["", "", " fill(none)", " fill(previous)", " fill(linear)", " fill(-1.5)"]);
    text += pick(random, &["", "", " ORDER BY time DESC"]);
    text += pick(random, &["", " LIMIT 3", " LIMIT 1 OFFSET 9223372036854775807", " SLIMIT 1 SOFFSET 1"]);
    text += pick(random, &["", "", " tz('America/Chicago')"]);
    text
}

#[test]
fn random_statements_never_panic() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3_000);
    let mut random = StdRng::seed_from_u64(seed);
    let points = Points::read(include_str!("../../tests/cases/points.lp"));
    let (catalog, pool) = (points.catalog.clone(), MemoryPool::new(8 << 20));
    let session =
        Session::with_source(Box::new(points), catalog, pool.clone(), 1_767_600_600_000_000_000, "1.8");
    let mut answered = 0;
    for _ in 0..rounds {
        let text = select(&mut random, 2);
        let Ok(statements) = parse(&text, &BoundValues::new()) else { continue };
        let result = futures::executor::block_on(session.run(0, &statements[0]));
        answered += u64::from(!result.series.is_empty());
        let format = ReplyFormat { epoch: Epoch::Text, is_csv: random.random(), is_pretty: false };
        let mut writer = ReplyWriter::new(format, random.random::<bool>().then_some(2), &pool);
        let mut reply: String = writer.pieces(&result).collect();
        reply += &writer.finish();
        if !format.is_csv {
            let values = serde_json::Deserializer::from_str(&reply).into_iter::<serde_json::Value>();
            assert!(values.into_iter().all(|value| value.is_ok()), "{text}: {reply}");
        }
    }
    assert!(answered * 20 > rounds, "only {answered} of {rounds} statements have series");
}
