//! Where queries run and what they keep, for people.

use std::fmt::Write as _;

use super::{ONE, Placed, Queries};

/// Each query of each file: what it consists of, where it runs and why, what it keeps.
pub fn explain(queries: &Queries, partitions: u32) -> String {
    let mut out = String::new();
    for file in &queries.files {
        let clock =
            if file.plan.playback { "the clock is that of the events" } else { "the clock is the machine's" };
        let _ = writeln!(out, "{}: {clock}", file.name);
        for placed in &file.placed {
            element(placed, partitions, &mut out);
        }
    }
    out
}

fn element(placed: &Placed, partitions: u32, out: &mut String) {
    let place = match placed.everywhere {
        true => format!("in each of {partitions} partitions"),
        false => format!("in partition {ONE}"),
    };
    if let Some(with) = &placed.with {
        let _ = writeln!(out, "  partition with ({with})");
    }
    let indent = if placed.with.is_some() { "    " } else { "  " };
    for (name, facts) in &placed.queries {
        let _ = writeln!(out, "{indent}{name}");
        let operators = match facts.operators.is_empty() {
            true => "select".to_owned(),
            false => facts.operators.join(", "),
        };
        let _ = writeln!(out, "{indent}  {} -> {} -> {}", facts.reads.join(", "), operators, facts.writes);
        let keeps = if facts.keeps.is_empty() { "nothing".to_owned() } else { facts.keeps.join(", ") };
        let _ = writeln!(out, "{indent}  keeps {keeps}");
    }
    let _ = writeln!(out, "{indent}  runs {place}: {}", placed.why);
    if let Some(group) = &placed.group {
        let _ = writeln!(out, "{indent}  group {group}");
    }
    if let Some(parallel) = &placed.parallel {
        let runs = if placed.everywhere { partitions } else { 1 };
        let _ = writeln!(out, "{indent}  asked for {parallel} at a time, runs {runs} at a time");
    }
}
