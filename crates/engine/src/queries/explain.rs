//! Where queries run and what they keep, for people.

use std::fmt::Write as _;

use super::{ElementPlacement, Queries, QueryFile, Spread, Unit};

/// Each query of each file: what it consists of, where it runs and why, what it keeps.
pub fn explain(queries: &Queries, partitions: u32) -> String {
    let mut out = String::new();
    for (number, file) in queries.files.iter().enumerate() {
        let clock =
            if file.plan.playback { "the clock is that of the events" } else { "the clock is the machine's" };
        let _ = writeln!(out, "{}: {clock}", file.name);
        if queries.units.iter().any(|unit| unit.file == number && !unit.partitioned) {
            let _ = writeln!(out, "  home is partition {}: {}", file.home, file.home_reason);
        }
        late(queries, number, file, &mut out);
        for placed in &file.placements {
            element(queries, file, placed, partitions, &mut out);
        }
    }
    out
}

/// Writes how late events are treated, if they correct what was emitted.
fn late(queries: &Queries, number: usize, file: &QueryFile, out: &mut String) {
    let Some(allowed) = file.plan.corrected else { return };
    let most = file.plan.limits().corrected_rows;
    let _ = writeln!(
        out,
        "  late events, up to {allowed} ms behind the clock, correct what was put out; at most {most} rows are kept for it"
    );
    let units = queries.units.iter().filter(|unit| unit.file == number);
    let streams: Vec<String> = units.flat_map(Unit::retracts).collect();
    let _ = writeln!(out, "  retractions go to {}", streams.join(", "));
}

fn element(
    queries: &Queries,
    file: &QueryFile,
    placed: &ElementPlacement,
    partitions: u32,
    out: &mut String,
) {
    let place = match placed.partitioned {
        true => format!("in each of {partitions} partitions"),
        false => format!("in partition {}", file.home),
    };
    if let Some(with) = &placed.partition_key {
        let _ = writeln!(out, "  partition with ({with})");
    }
    let indent = if placed.partition_key.is_some() { "    " } else { "  " };
    for (name, facts) in &placed.queries {
        let _ = writeln!(out, "{indent}{name}");
        let operators = match facts.operators.is_empty() {
            true => "select".to_owned(),
            false => facts.operators.join(", "),
        };
        let _ = writeln!(out, "{indent}  {} -> {} -> {}", facts.reads.join(", "), operators, facts.writes);
        let keeps = if facts.retained_state.is_empty() {
            "nothing".to_owned()
        } else {
            facts.retained_state.join(", ")
        };
        let _ = writeln!(out, "{indent}  keeps {keeps}");
        let _ = writeln!(out, "{indent}  runs {place}: {}", placed.reason);
    }
    if let Some(group) = &placed.group {
        let _ = writeln!(out, "{indent}  group {group}");
    }
    if let Some(parallel) = &placed.parallel {
        let read = placed.queries.first().and_then(|(_, facts)| facts.reads.first());
        let (runs, reason) = match read.and_then(|stream| queries.spread.get(stream)) {
            _ if !placed.partitioned => (1, String::new()),
            None => (partitions, String::new()),
            Some(Spread::Over(instances)) => ((*instances).min(partitions), String::new()),
            Some(Spread::One(reason)) => (1, format!(": {reason}")),
        };
        let _ = writeln!(out, "{indent}  asked for {parallel} at a time, runs {runs} at a time{reason}");
    }
}
