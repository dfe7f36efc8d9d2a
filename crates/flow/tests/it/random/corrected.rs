//! Late events that correct emitted output, compared with a run in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value as Json;
use tidemill_flow::EvalError;
use tidemill_flow::late::{CorrectingRuntime, RetractionHandler};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::{Input, compile};
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Registry};

use super::app::Generated;
use super::{OUTPUTS_MAX, events};
use crate::fed::parts;

const INPUTS: usize = 120;

/// Definitions that the generated apps lack.
const MORE: &str = "define trigger Beats at every 700 milliseconds;
define aggregation A from S0 select k, sum(v) as total, count() as n group by k aggregate every sec ... min;
";
const BEATS: &str = "from Beats join T select triggered_time as at, count() as n, max(T.v) as top insert into Tops;
from S0 join A on S0.k == A.k within '1970-01-01 **:**:**' per 'minutes' select A.k as k, A.total as total insert into Totals;
";
const ASKED: [&str; 2] = [
    "from T select k, v",
    "from A within '1970-01-01 **:**:**' per 'seconds' select AGG_TIMESTAMP, k, total, n",
];

const CHANGE: &str = "select 'a' as k, 77 as v update or insert into T set T.v = v on T.k == k";

/// Net output per stream: emitted rows minus retracted rows.
#[derive(Default)]
pub struct Net {
    pub rows: BTreeMap<String, i64>,
    /// Number of emitted rows.
    pub put_out: usize,
    /// Number of retracted rows.
    pub retracted: usize,
}

impl Net {
    fn change(&mut self, stream: &str, events: &Batch, by: i64) {
        for row in 0..events.len() {
            let values: Vec<String> = events.columns.iter().map(|c| format!("{:?}", c.get(row))).collect();
            let text = format!("{stream} {} {}", events.times[row], values.join(", "));
            *self.rows.entry(text).or_default() += by;
        }
    }

    /// Returns the first difference.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let of = |net: &Self, row: &str| net.rows.get(row).copied().unwrap_or_default();
        let mut all = self.rows.keys().chain(other.rows.keys());
        let row = all.find(|row| of(self, row) != of(other, row))?;
        Some(format!("{row}\n  in order {} times, corrected {} times", of(self, row), of(other, row)))
    }
}

impl OutputHandler for Net {
    fn events(&mut self, stream: &str, events: &Batch) {
        self.put_out += events.len();
        self.change(stream, events, 1);
    }
    fn sent(&mut self, _: &str, _: &Batch) {}
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, _: &str, _: &EvalError) {}
}

impl RetractionHandler for Net {
    fn retracted(&mut self, stream: &str, events: &Batch) {
        self.retracted += events.len();
        self.change(stream, events, -1);
    }
}

fn time_of(input: &Input) -> i64 {
    match input {
        Input::Event { timestamp, .. } | Input::Clock { timestamp } => *timestamp,
        _ => 0,
    }
}

/// Returns the accepted inputs in order of time. Time does not advance before the first event; an on-demand
/// query runs at the current time.
fn in_order(inputs: &[Input], allowed: i64) -> Vec<(i64, Input)> {
    let mut clock: Option<i64> = None;
    let mut taken = Vec::new();
    for input in inputs {
        let asks = matches!(input, Input::OnDemand { .. });
        let time = if asks { clock.unwrap_or(i64::MIN) } else { time_of(input) };
        let is_event = matches!(input, Input::Event { .. });
        let takes = match clock {
            None => is_event,
            Some(clock) => is_event && clock - time <= allowed || !is_event && time > clock,
        };
        if takes || asks {
            clock = if asks { clock } else { Some(clock.map_or(time, |c| c.max(time))) };
            taken.push((time, input.clone()));
        }
    }
    taken.sort_by_key(|(time, _)| *time);
    taken
}

type One<'a> = (&'a str, i64, &'a [Json]);

fn run_in_order(plan: &Arc<AppPlan>, inputs: &[(i64, Input)]) -> Result<(Net, AppRuntime), String> {
    let mut net = Net::default();
    let mut app = AppRuntime::new(plan.clone());
    let first = inputs.iter().find(|(_, input)| !matches!(input, Input::OnDemand { .. }));
    if let Some((time, _)) = first {
        app.start(*time, &mut net);
    }
    for (time, input) in inputs {
        match input {
            Input::Event { stream, timestamp, data } => {
                let one: [One<'_>; 1] = [(stream, *timestamp, data)];
                let (parts, _) = parts(&app, &one).ok_or("an event does not fit its stream")?;
                let part = parts.into_iter().next().ok_or("no event")?;
                app.send(part.stream, part.columns, part.times, &mut net).map_err(|f| f.to_string())?;
            }
            Input::OnDemand { on_demand } => drop(app.on_demand(on_demand).map_err(|f| f.to_string())?),
            _ => app.advance(*time, &mut net),
        }
    }
    // inner streams, fault streams and named windows are not visible from outside
    let visible = |row: &str| {
        let name = row.split(' ').next().unwrap_or_default();
        let window = plan.catalog.find(name).is_some_and(|s| plan.catalog.window(s).is_some());
        !window && !name.starts_with(['#', '!'])
    };
    net.rows.retain(|row, _| visible(row));
    Ok((net, app))
}

fn again(
    app: &CorrectingRuntime,
    plan: &Arc<AppPlan>,
    allowed: i64,
    step: usize,
) -> Result<CorrectingRuntime, String> {
    let mut state = Vec::new();
    app.save(&mut state).map_err(|e| format!("its state cannot be saved: {e}"))?;
    let mut again = CorrectingRuntime::new(plan.clone(), allowed).with_commit_step(step);
    again.restore(&mut state.as_slice()).map_err(|e| format!("its state is not taken back: {e}"))?;
    Ok(again)
}

fn visible(net: &Net, plan: &AppPlan) -> Net {
    let is = |row: &&String| {
        let name = row.split(' ').next().unwrap_or_default();
        let window = plan.catalog.find(name).is_some_and(|s| plan.catalog.window(s).is_some());
        !window && !name.starts_with(['#', '!'])
    };
    let rows = net.rows.keys().filter(is).map(|row| (row.clone(), net.rows[row])).collect();
    Net { rows, ..Net::default() }
}

/// Sends the events of an app out of order. Returns whether a row was retracted, or the failure.
pub fn check(generated: &Generated, rng: &mut StdRng, registry: &Registry) -> Result<bool, String> {
    let allowed = rng.random_range(1..5000);
    let late = format!("{MORE}@late(policy='correct', allowed='{allowed} millisec')\ndefine stream S0 ");
    let text = generated.text.replacen("define stream S0 ", &late, 1) + BEATS;
    let plan = match compile("corrected", &text, registry, &|_| None) {
        Err(why) if why.contains("F0510") => return Ok(false),
        plan => Arc::new(plan?),
    };
    let mut inputs = events::alone(rng, &generated.inputs, INPUTS);
    // some arrive later than allowed
    let jitter = allowed + rng.random_range(0..allowed + 1) / 4;
    inputs.sort_by_cached_key(|input| time_of(input) + rng.random_range(0..jitter + 1));
    let together = rng.random_range(1..30);
    let step = rng.random_range(1..60);
    let stop = rng.random_range(0..inputs.len());
    let mut net = Net::default();
    let mut app = CorrectingRuntime::new(plan.clone(), allowed).with_commit_step(step);
    let (mut at, mut seen) = (0, Vec::new());
    let mut checked = false;
    while at < inputs.len() {
        let count = rng.random_range(1..together + 1).min(inputs.len() - at);
        let mut group: Vec<One<'_>> = Vec::new();
        for input in &inputs[at..at + count] {
            if let Input::Event { stream, timestamp, data } = input {
                group.push((stream, *timestamp, data));
                continue;
            }
            hand_in(&mut app, &mut group, &mut net)?;
            app.advance(time_of(input), &mut net);
        }
        hand_in(&mut app, &mut group, &mut net)?;
        app.apply_corrections(&mut net).map_err(|f| f.to_string())?;
        seen.extend_from_slice(&inputs[at..at + count]);
        at += count;
        if rng.random_bool(0.05) {
            app.on_demand(CHANGE).map_err(|f| f.to_string())?;
            seen.push(Input::OnDemand { on_demand: CHANGE.to_owned() });
        }
        if net.put_out > OUTPUTS_MAX {
            return Ok(false);
        }
        if rng.random_bool(0.1) {
            app = again(&app, &plan, allowed, step)?;
        }
        if at == inputs.len() || at > stop && !checked {
            checked = true;
            let (wanted, mut last) = run_in_order(&plan, &in_order(&seen, allowed))?;
            let shown = visible(&net, &plan);
            if let Some(row) = wanted.difference(&shown) {
                return Err(format!("allowed {allowed} ms, {at} inputs, corrected otherwise: {row}"));
            }
            for asked in ASKED {
                let [was, is] = [last.on_demand(asked), app.on_demand(asked)].map(|rows| {
                    let rows = rows.map_err(|f| f.to_string())?;
                    let mut found = Net::default();
                    found.events("rows", &rows);
                    Ok::<_, String>(found)
                });
                if let Some(row) = was?.difference(&is?) {
                    return Err(format!("{at} inputs, `{asked}` finds other rows: {row}"));
                }
            }
        }
    }
    Ok(net.retracted > 0)
}

fn hand_in(app: &mut CorrectingRuntime, group: &mut Vec<One<'_>>, net: &mut Net) -> Result<(), String> {
    if group.is_empty() {
        return Ok(());
    }
    let (parts, order) = parts(app.app(), group).ok_or("an event does not fit its stream")?;
    app.send_batch(parts, Some(&order), net).map_err(|f| f.to_string())?;
    group.clear();
    Ok(())
}
